/** Everything that a page sends, gets and keeps, as text to search. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { BrowserContext, CDPSession, Page } from 'playwright-core';
import { callFrontend } from './page.ts';

export interface Watch {
  /** What the DevTools protocol told: requests, responses, their fields as they went over the wire, bodies. */
  readonly traffic: readonly string[];
  /** The status of each response for an address, as it came over the wire (a 304 stays one). */
  statuses(url: string): readonly number[];
  /** Resolves when the bodies that were asked for are here. */
  settle(): Promise<void>;
}

/** Watches a page from now on. */
export async function watchTraffic(context: BrowserContext, page: Page): Promise<Watch> {
  const session: CDPSession = await context.newCDPSession(page);
  const traffic: string[] = [];
  const urls = new Map<string, string>();
  const wire: [string, number][] = [];
  const bodies: Promise<unknown>[] = [];
  const note = (name: string, event: unknown): void => {
    traffic.push(`${name} ${JSON.stringify(event)}`);
  };
  session.on('Network.requestWillBeSent', (event) => {
    urls.set(event.requestId, event.request.url);
    note('request', event);
  });
  session.on('Network.requestWillBeSentExtraInfo', (event) => note('request fields', event));
  session.on('Network.responseReceived', (event) => note('response', event));
  session.on('Network.responseReceivedExtraInfo', (event) => {
    wire.push([event.requestId, event.statusCode]);
    note('response fields', event);
  });
  session.on('Network.dataReceived', (event) => note('data', event));
  session.on('Network.loadingFailed', (event) => note('failure', event));
  session.on('Network.loadingFinished', ({ requestId }) => {
    const body = session.send('Network.getResponseBody', { requestId });
    bodies.push(body.then((event) => note('body', event)).catch(() => {}));
  });
  session.on('Network.webSocketCreated', (event) => note('web socket', event));
  await session.send('Network.enable');
  return {
    traffic,
    statuses: (url) => wire.filter(([id]) => urls.get(id) === url).map(([, status]) => status),
    settle: async () => {
      await Promise.all(bodies);
    },
  };
}

/** What a page has stored, as itself and as the browser sees it. */
export async function storageOf(context: BrowserContext, page: Page): Promise<string> {
  const stored = await callFrontend<object>(page, 'stored');
  return JSON.stringify([stored, await context.storageState({ indexedDB: true })]);
}

/** Every byte below a folder: the browser's profile, its cache on disk, its log of the network. */
export function bytesBelow(folder: string): string {
  const parts: string[] = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) parts.push(readFileSync(join(entry.parentPath, entry.name)).toString('latin1'));
  }
  return parts.join('\n');
}
