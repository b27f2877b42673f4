/** The documents as the tests read them: their paths, headings, links and fenced blocks. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/** Paths from the root, with slashes. */
export const documents: readonly string[] = [
  ...readdirSync(root).filter((name) => name.endsWith('.md')),
  'deploy/README.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .map((path) => `docs/${path.replaceAll('\\', '/')}`)
    .filter((path) => path.endsWith('.md') && !/node_modules|\.vitepress/.test(path)),
].sort();

export function readDocument(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

export interface Block {
  /** What stands behind the opening fence: `sh`, `json`, `yaml`. */
  readonly language: string;
  readonly text: string;
  /** From `<!-- not run: … -->` before it. */
  readonly notRunBecause: string | undefined;
}

export function blocksOf(document: string): Block[] {
  const pattern = /(?:<!-- not run: (.*?) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm;
  return [...document.matchAll(pattern)].map(([, notRunBecause, language = '', text = '']) => ({
    language,
    text,
    notRunBecause,
  }));
}

/** The targets of a document's links and pictures, those in code left out. */
export function linksOf(document: string): string[] {
  const prose = document.replace(/^```[\s\S]*?^```$/gm, '').replace(/`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
}

/** The anchors that GitHub gives to a document's headings. */
export function anchorsOf(document: string): Set<string> {
  const anchors = new Set<string>();
  const prose = document.replace(/^```[\s\S]*?^```$/gm, '');
  for (const [, heading = ''] of prose.matchAll(/^#{1,6} (.*)$/gm)) {
    const words = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
    const anchor = words.replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-');
    let name = anchor;
    for (let more = 1; anchors.has(name); more++) name = `${anchor}-${more}`;
    anchors.add(name);
  }
  return anchors;
}
