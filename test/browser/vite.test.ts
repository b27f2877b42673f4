/** The recipe for a development server in docs/callers.md, with a real Vite server between page and gateway. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { readDocument } from '../support/documents.ts';
import { accounts, startPair } from '../support/gateway.ts';
import { startVite } from '../support/vite.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);

describe('a page on a Vite development server', () => {
  it.skipIf(chromium === undefined)(
    'a page on a Vite development server reads the gateway with no setting for it, and the browser keeps the answer',
    { timeout: 120_000 },
    async () => {
      const { url, standIn, logLines } = await startPair();
      const vite = await startVite(url);
      const browser = await launchChromium(chromium ?? '');
      onTestFinished(() => browser.close());
      const page = await browser.newPage();
      await page.goto(vite.url);
      const read = (): Promise<unknown> =>
        page.evaluate(`fetch('${accounts}').then(async (one) => [one.status, typeof (await one.json())])`);
      expect([await read(), await read()]).toEqual([
        [200, 'object'],
        [200, 'object'],
      ]);
      expect(logLines().flatMap(({ status }) => (status === undefined ? [] : [status]))).toEqual([200, 304]);
      expect(standIn.requests).toHaveLength(1);
    },
  );

  it('a page of another site is refused behind a Vite development server as it is before the gateway', async () => {
    const { url, standIn } = await startPair();
    const vite = await startVite(url);
    const foreign = await vite.ask(accounts, { headers: { 'sec-fetch-site': 'cross-site' } });
    expect(foreign.json()).toMatchObject({ code: 'origin-not-allowed' });
    expect(standIn.requests).toHaveLength(0);
  });

  it('a foreign name reaches the gateway through a Vite development server that takes any, and is refused', async () => {
    const { url, standIn } = await startPair();
    const rebound = { headers: { host: 'evil.example', 'sec-fetch-site': 'same-origin' } };
    const strict = await startVite(url);
    expect((await strict.ask(accounts, rebound)).status).toBe(403);
    const lax = await startVite(url, (text) => text.replace('server: {', 'server: { allowedHosts: true,'));
    expect((await lax.ask(accounts, rebound)).json()).toMatchObject({ code: 'host-not-allowed' });
    expect(standIn.requests).toHaveLength(0);
  });

  it('a token in the configuration of a Vite development server makes the page that caller', async () => {
    const { token, entry } = enrol('page-under-development');
    const { url, logLines } = await startWith([entry]);
    const shown = /`(headers: \{[^`]*\})`/.exec(readDocument('docs/callers.md'))?.[1] ?? '';
    const headers = shown.replace('process.env.GATEWAY_TOKEN', JSON.stringify(token));
    const vite = await startVite(url, (text) => text.replace("' } }", `', ${headers} } }`));
    expect((await vite.ask(accounts)).status).toBe(200);
    expect(logLines().some(({ caller }) => caller === 'page-under-development')).toBe(true);
  });
});
