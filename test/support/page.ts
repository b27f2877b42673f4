/** A frontend's own server: a page at an origin of its own, with the script beside this file. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from 'playwright-core';
import { onTestFinished } from 'vitest';

const script = readFileSync(new URL('frontend.js', import.meta.url), 'utf8');

/** @returns the origin, as the browser sends it */
export async function servePage(): Promise<string> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(
      `<!doctype html><title>A frontend</title><link rel="icon" href="data:,"><body><script>${script}</script>`,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Calls a function of the page's script. */
export function callFrontend<T>(page: Page, name: string, ...args: readonly unknown[]): Promise<T> {
  return page.evaluate<T>(`frontend.${name}(...${JSON.stringify(args)})`);
}
