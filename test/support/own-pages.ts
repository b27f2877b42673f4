/** The gateway's own pages, its console and its API page, as a browser shows them. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { ConsoleMessage, Page, Request } from 'playwright-core';
import { onTestFinished } from 'vitest';
import type { AtEnd } from './gateway.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const phone = { width: 360, height: 800 };
export const desktop = { width: 1280, height: 900 };

/** What each of these pages is looked at with. */
export const views = [
  { device: 'desktop', viewport: desktop, colorScheme: 'light' },
  { device: 'desktop', viewport: desktop, colorScheme: 'dark' },
  { device: 'phone', viewport: phone, colorScheme: 'light' },
  { device: 'phone', viewport: phone, colorScheme: 'dark' },
] as const;

/** Shows a page, or the next one in its place, in this way; resolves when it has been told. */
export async function viewAs(
  page: Page,
  viewport: typeof phone,
  colorScheme: 'light' | 'dark',
): Promise<void> {
  await page.setViewportSize(viewport);
  await page.emulateMedia({ colorScheme });
  // It is told of both before its next frame.
  await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))');
}

/** Collects from now on what the browser has to complain of, and requests of the page to elsewhere than `url`. */
export function complaintsOf(page: Page, url: string, atEnd: AtEnd = onTestFinished): readonly string[] {
  const complaints: string[] = [];
  const onMessage = (message: ConsoleMessage): unknown => complaints.push(message.text());
  const onError = (error: Error): unknown => complaints.push(error.message);
  const onRequest = (request: Request): void => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) complaints.push(request.url());
  };
  page.on('console', onMessage).on('pageerror', onError).on('request', onRequest);
  atEnd(() => void page.off('console', onMessage).off('pageerror', onError).off('request', onRequest));
  return complaints;
}

/** Rules that axe says are broken, each with the elements that break it. */
export async function violations(page: Page): Promise<string[]> {
  // Once for each document.
  if (!(await page.evaluate<boolean>('"axe" in globalThis'))) await page.evaluate(axe);
  const found = await page.evaluate<{ id: string; nodes: { html: string; failureSummary: string }[] }[]>(
    'axe.run(document, { resultTypes: ["violations"], selectors: false }).then(({ violations }) => violations)',
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}
