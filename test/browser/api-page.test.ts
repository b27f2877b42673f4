import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { type AtEnd, startPair, type TestGateway } from '../support/gateway.ts';
import { complaintsOf, desktop, viewAs, views, violations } from '../support/own-pages.ts';
import { sharedOwner } from '../support/shared-owner.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);
/** A folder for pictures of the pages, to look at after a change of one. */
const pictures = process.env['API_PAGE_PICTURES'];

let browser: Browser;
let context: BrowserContext;
/** One for all tests but that without scripts: with a new one for each, the browser has half as much work again. */
let page: Page;

async function takePicture(page: Page, name: string): Promise<void> {
  if (pictures === undefined) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

/** Sends the first operation from its form, and gives what the page says of the reply. */
async function sendFirst(page: Page): Promise<string> {
  const form = page.locator('article form').first();
  await form.locator('button').click();
  await form.locator('.status').waitFor();
  return form.locator('.came').innerText();
}

const startTwo = (atEnd?: AtEnd): Promise<TestGateway> =>
  startPair({ UPSTREAM_READS: '/analytics/reports/:id/' }, {}, atEnd);

describe.skipIf(chromium === undefined)('the API page in a browser', () => {
  beforeAll(async () => {
    browser = await launchChromium(chromium ?? '');
    context = await browser.newContext();
    page = await context.newPage();
    await viewAs(page, desktop, 'light');
  });
  afterAll(() => browser?.close());

  describe('in every view', () => {
    /** A page of each kind, and what the browser complains of. */
    const opened = new Map<string, { readonly page: Page; readonly complaints: readonly string[] }>();
    const { onTestFinished: atEnd } = sharedOwner();
    beforeAll(async () => {
      const { url } = await startTwo(atEnd);
      for (const path of ['/docs', '/', '/problems']) {
        const page = await context.newPage();
        atEnd(() => page.close());
        opened.set(path, { page, complaints: complaintsOf(page, url, atEnd) });
        await page.goto(`${url}${path}`);
        if (path === '/docs') await sendFirst(page);
      }
    });

    it.each(views.map(({ device, viewport, colorScheme }) => [device, viewport, colorScheme] as const))(
      'the pages on a %s %o, %s, are whole, and axe finds nothing',
      async (device, viewport, colorScheme) => {
        for (const [path, { page, complaints }] of opened) {
          await viewAs(page, viewport, colorScheme);
          await takePicture(
            page,
            `${device}-${colorScheme}${path === '/' ? '-start' : path.replace('/', '-')}`,
          );
          expect(await page.evaluate('document.documentElement.scrollWidth'), path).toBe(viewport.width);
          expect(complaints, path).toEqual([]);
          expect(await violations(page), path).toEqual([]);
        }
      },
    );
  });

  it('the API page shows the examples of one language at a time', async () => {
    const { url } = await startTwo();
    await page.goto(`${url}/docs`);
    const shown = async (): Promise<string[]> =>
      (await page.locator('.example pre:visible').allInnerTexts()).map((text) => text.slice(0, 6));
    expect(await shown()).toEqual(['curl -', 'curl -', 'curl -']);
    await page.getByRole('radio', { name: 'Python' }).check();
    expect(await shown()).toEqual(['import', 'import', 'import']);
    await page.keyboard.press('ArrowLeft');
    expect(await shown()).toEqual(['const ', 'const ', 'const ']);
  });

  it('the API page sends a request with the token of its field, and shows what comes', async () => {
    const { token, entry } = enrol('reports');
    const gateway = await startWith([entry]);
    const complaints = complaintsOf(page, gateway.url);
    await page.goto(`${gateway.url}/docs`);
    expect(await sendFirst(page)).toMatch(/^401 Unauthorized[\s\S]*caller-unauthenticated/);
    await page.getByLabel(/^Token/).fill(token);
    await expect.poll(() => sendFirst(page)).toMatch(/^200 OK/);
    await expect.poll(() => sendFirst(page)).toMatch(/^200 OK · \d+ ms · hit; ttl=/);
    await page.reload();
    expect(await page.getByLabel(/^Token/).inputValue()).toBe('');
    expect(complaints.filter((text) => !text.includes('401'))).toEqual([]);
  });

  it('the API page sends what its reader fills in: the segments of the path and the query', async () => {
    const gateway = await startTwo();
    await page.goto(`${gateway.url}/docs`);
    const form = page.locator('article form').last();
    await form.getByLabel('id').fill('r-7');
    await form.getByLabel(/^Query/).fill('?from=2026-11-01&to=2026-11-02');
    await form.getByRole('button').click();
    await form.locator('.status').waitFor();
    expect(gateway.standIn.requests.map(({ target }) => target)).toEqual([
      '/api/analytics/reports/r-7/?from=2026-11-01&to=2026-11-02',
    ]);
  });

  it('the examples of the API page have the address that the browser uses', async () => {
    const gateway = await startTwo();
    await page.goto(`${gateway.url.replace('127.0.0.1', 'localhost')}/docs`);
    const [text = ''] = await page.locator('.example code').allInnerTexts();
    expect(text).toBe(`curl -i 'http://localhost:${gateway.port}/api/analytics/accounts/'`);
    // As behind a proxy that ends TLS and passes another name on.
    await page.route('**/docs', async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replaceAll(
        `http://localhost:${gateway.port}`,
        'http://inside:8080',
      );
      await route.fulfill({ response, body });
    });
    onTestFinished(() => page.unrouteAll());
    await page.reload();
    expect((await page.locator('.example code').allInnerTexts())[0]).toBe(text);
  });

  it('the API page begins with the base address and one command, and examples follow what is typed', async () => {
    const gateway = await startTwo();
    const address = `http://127.0.0.1:${gateway.port}/api`;
    await page.goto(`${gateway.url}/docs`);
    const [base, command] = await page.locator('#start .command code').allInnerTexts();
    expect([base, command]).toEqual([address, `curl -i '${address}/analytics/accounts/'`]);
    const article = page.locator('article').first();
    const curl = article.locator('.example.curl code');
    const before = await curl.innerText();
    await article.locator('input[name="?"]').fill("?page=2&q=it's $5");
    expect(await curl.innerText()).toBe(`curl -i '${address}/analytics/accounts/?page=2&q=it%27s%20%245'`);
    await article.locator('input[name="?"]').fill('');
    expect(await curl.innerText()).toBe(before);
    // The command at the beginning stays.
    expect(await page.locator('#start .command code').last().innerText()).toBe(command);
  });

  it('the API page can be read where no script runs', async () => {
    const { url } = await startTwo();
    const page = await browser.newPage({ viewport: desktop, javaScriptEnabled: false });
    onTestFinished(() => page.close());
    await page.goto(`${url}/docs`);
    expect(await page.locator('.example pre:visible').count()).toBe(3);
    expect(await page.locator('form:visible').count()).toBe(0);
  });
});
