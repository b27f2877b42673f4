/**
 * The programs and styles that pages carry, as texts. From `src/` they are made when a page is first read; the build
 * makes them once and puts them in place of this file.
 */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

interface PageTexts {
  readonly script: string;
  readonly style: string;
}

/** What the console carries. */
export const consoleTexts = await bundlePage('console');
/** What the API page carries; its style is that of all documents. */
export const apiPageTexts = await bundlePage('api-page');

/** @param folder below this one, with `main.ts` and `style.css` in it */
async function bundlePage(folder: 'console' | 'api-page'): Promise<PageTexts> {
  // Needed in a checkout alone, where development packages are installed.
  const { build } = await import('rolldown');
  const { output } = await build({
    input: fileURLToPath(new URL(`${folder}/main.ts`, import.meta.url)),
    platform: 'browser',
    // For the type checker alone; the folder of an image has not all of it.
    tsconfig: false,
    write: false,
    logLevel: 'warn',
    output: { format: 'iife', minify: true, comments: false },
  });
  const style = await readFile(new URL(`${folder}/style.css`, import.meta.url), 'utf8');
  return { script: output[0].code.trim(), style: withoutBlanks(style) };
}

/** Without comments, line ends and indentation. */
function withoutBlanks(style: string): string {
  return style
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/\s*\n\s*/g, ' ')
    .replaceAll(/ ?([{};,]) ?/g, '$1')
    .replaceAll(/([^\s(]): /g, '$1:')
    .trim();
}
