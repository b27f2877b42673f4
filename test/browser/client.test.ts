/**
 * The built client in a page, as a developer has it: in `node_modules`, imported by its name, served by Vite. That the
 * package brings it there is what `test/promises/package.test.ts` shows.
 */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { startPair } from '../support/gateway.ts';
import { builtFolder } from '../support/program.ts';
import { startVite } from '../support/vite.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);

describe.skipIf(chromium === undefined)('the client in a page', { timeout: 120_000 }, () => {
  let browser: Browser;
  const project = mkdtempSync(join(tmpdir(), 'gateway-page-'));

  beforeAll(async () => {
    browser = await launchChromium(chromium ?? '');
    cpSync(builtFolder, join(project, 'node_modules/workspace-analytics-gateway'), { recursive: true });
    writeFileSync(
      join(project, 'index.html'),
      '<!doctype html><script type="module" src="/main.ts"></script>',
    );
    writeFileSync(join(project, 'main.ts'), script);
  });
  afterAll(async () => {
    await browser.close();
    rmSync(project, { recursive: true, force: true, maxRetries: 5 });
  });

  /** What the page does: it reads in every way and says what came of it. */
  const script = `
    import { createClient, type GatewayProblem } from 'workspace-analytics-gateway/client';

    async function readAll(baseUrl: string, token?: string) {
      const client = createClient({ baseUrl, token });
      const codeOf = (error: unknown) => (error as GatewayProblem).code;
      const first = await client.read('list-accounts');
      const again = await client.read('list-accounts');
      const unchanged = await client.read('list-accounts', { previous: first });
      const refused = await client.read('list-api-keys').catch(codeOf);
      const unknown = await client.read('/analytics/posts/').catch(codeOf);
      return {
        statuses: [first.status, again.status, unchanged.status],
        isSame: unchanged.data === first.data,
        id: typeof first.headers.get('x-request-id'),
        refused,
        unknown,
      };
    }

    async function readLater(baseUrl: string, token?: string) {
      const { status } = await createClient({ baseUrl, token }).read('list-accounts', { query: { later: true } });
      return status;
    }

    async function readAndLeave(baseUrl: string, token?: string) {
      const signal = AbortSignal.timeout(500);
      const read = createClient({ baseUrl, token }).read('list-accounts', { query: { never: true }, signal });
      return await read.catch((error: Error) => error.name);
    }

    Object.assign(globalThis, { readAll, readLater, readAndLeave });
  `;

  async function open(url: string): Promise<Page> {
    const page = await browser.newPage();
    onTestFinished(() => page.close());
    await page.goto(url);
    await page.waitForFunction('"readAll" in globalThis');
    return page;
  }

  it('the client in a page reads from a gateway at another origin, with a token', async () => {
    const vite = await startVite('http://127.0.0.1:9', undefined, project);
    const { token, entry } = enrol('page');
    const settings = { CORS_ORIGINS: new URL(vite.url).origin, RETRY_LIMIT: '0' };
    const { url, standIn, logLines } = await startWith([entry], settings);
    const page = await open(vite.url);
    const call = (name: string): Promise<unknown> =>
      page.evaluate(`${name}(${JSON.stringify(`${url}/api`)}, ${JSON.stringify(token)})`);

    expect(await call('readAll')).toEqual({
      // The browser keeps the answer and asks for itself; what it was asked to ask, it hands on.
      statuses: [200, 200, 304],
      isSame: true,
      id: 'string',
      refused: 'caller-forbidden',
      unknown: 'unknown-operation',
    });
    expect(
      logLines().flatMap(({ status }) => (status === undefined || status === 204 ? [] : [status])),
    ).toEqual([200, 304, 304, 403, 404]);

    standIn.behave({ status: 429, headers: { 'retry-after': '1' }, body: '{}' }, 1);
    expect(await call('readLater')).toBe(200);
    expect(logLines().some(({ status }) => status === 429)).toBe(true);

    standIn.behave({ until: new Promise(() => {}) });
    expect(await call('readAndLeave')).toBe('TimeoutError');
  });

  it('the client in a page reads through the development server, from the page’s own origin', async () => {
    const { url } = await startPair();
    const page = await open((await startVite(url, undefined, project)).url);
    expect(await page.evaluate(`readAll('/api').then(({ statuses }) => statuses)`)).toEqual([200, 200, 304]);
  });
});
