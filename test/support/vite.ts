/** A Vite development server between a page and the gateway, with the configuration that docs/callers.md shows. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer } from 'vite';
import { onTestFinished } from 'vitest';
import { blocksOf, readDocument } from './documents.ts';
import { type AskOptions, ask, type Came } from './gateway.ts';

interface Development {
  /** The page's address. */
  readonly url: string;
  ask(path: string, options?: AskOptions): Promise<Came>;
}

/**
 * Vite with the configuration that the document shows, but for the gateway's address.
 *
 * @param change what the test has otherwise
 * @param folder the page's project, that need not have a page yet
 */
export async function startVite(
  gatewayUrl: string,
  change = (text: string) => text,
  folder = emptyFolder(),
): Promise<Development> {
  const recipe = blocksOf(readDocument('docs/callers.md')).find(({ text }) =>
    text.includes('vite.config.js'),
  );
  const config = change(recipe?.text.replace('http://127.0.0.1:8080', gatewayUrl) ?? '');
  writeFileSync(join(folder, 'vite.config.js'), config);
  writeUnlessThere(join(folder, 'package.json'), '{ "type": "module" }');
  writeUnlessThere(join(folder, 'index.html'), '<!doctype html><title>A page under development</title>');
  const server = await createServer({
    root: folder,
    configFile: join(folder, 'vite.config.js'),
    logLevel: 'silent',
    server: { host: '127.0.0.1', port: 0 },
  });
  onTestFinished(() => server.close());
  await server.listen();
  const [url = ''] = server.resolvedUrls?.local ?? [];
  const where = { host: '127.0.0.1', port: Number(new URL(url).port) };
  return { url, ask: (path, options = {}) => ask(where, path, options) };
}

function emptyFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-vite-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  return folder;
}

function writeUnlessThere(file: string, text: string): void {
  if (!existsSync(file)) writeFileSync(file, text);
}
