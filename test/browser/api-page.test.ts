import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchFlags } from '../support/chromium.ts';
import { startPair, type TestGateway } from '../support/gateway.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** A folder for pictures of the pages, to look at after a change of one. */
const pictures = process.env['API_PAGE_PICTURES'];

const phone = { width: 360, height: 800 };
const desktop = { width: 1280, height: 900 };

let browser: Browser;

interface Opened {
  readonly page: Page;
  /** What the browser has to complain of, and requests to elsewhere. */
  readonly complaints: string[];
}

/** A page that may ask `url` alone. */
async function openPage(
  url: string,
  { viewport = desktop, colorScheme = 'light' as 'light' | 'dark', javaScriptEnabled = true } = {},
): Promise<Opened> {
  const context = await browser.newContext({ viewport, colorScheme, javaScriptEnabled });
  onTestFinished(() => context.close());
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) complaints.push(request.url());
  });
  return { page, complaints };
}

async function open(url: string, options: { javaScriptEnabled?: boolean } = {}): Promise<Opened> {
  const opened = await openPage(url, options);
  await opened.page.goto(`${url}/docs`);
  return opened;
}

/** Rules that axe says are broken, each with the elements that break it. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate<{ id: string; nodes: { html: string; failureSummary: string }[] }[]>(
    'axe.run(document).then(({ violations }) => violations)',
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}

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

const startTwo = (): Promise<TestGateway> => startPair({ UPSTREAM_READS: '/analytics/reports/:id/' });

describe.skipIf(chromium === undefined)('the API page in a browser', () => {
  beforeAll(async () => {
    const { chromium: launcher } = await import('playwright-core');
    browser = await launcher.launch({ executablePath: chromium ?? '', args: launchFlags });
  });
  afterAll(() => browser.close());

  it.each([
    ['desktop', desktop, 'light'],
    ['desktop', desktop, 'dark'],
    ['phone', phone, 'light'],
    ['phone', phone, 'dark'],
  ] as const)(
    'the pages on a %s %o, %s, are whole, and axe finds nothing',
    async (name, viewport, colorScheme) => {
      const { url } = await startTwo();
      const { page, complaints } = await openPage(url, { viewport, colorScheme });
      for (const path of ['/docs', '/', '/problems']) {
        await page.goto(`${url}${path}`);
        if (path === '/docs') await sendFirst(page);
        await takePicture(page, `${name}-${colorScheme}${path === '/' ? '-start' : path.replace('/', '-')}`);
        expect(await page.evaluate('document.documentElement.scrollWidth'), path).toBe(viewport.width);
        expect(complaints, path).toEqual([]);
        expect(await violations(page), path).toEqual([]);
      }
    },
  );

  it('the API page shows the examples of one language at a time', async () => {
    const { url } = await startTwo();
    const { page } = await open(url);
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
    const { page, complaints } = await open(gateway.url);
    expect(await sendFirst(page)).toMatch(/^401 Unauthorized[\s\S]*caller-unauthenticated/);
    await page.getByLabel(/^Token/).fill(token);
    await expect.poll(() => sendFirst(page), { timeout: 20_000 }).toMatch(/^200 OK/);
    await expect.poll(() => sendFirst(page), { timeout: 20_000 }).toMatch(/^200 OK · \d+ ms · hit; ttl=/);
    await page.reload();
    expect(await page.getByLabel(/^Token/).inputValue()).toBe('');
    expect(complaints.filter((text) => !text.includes('401'))).toEqual([]);
  });

  it('the API page sends what its reader fills in: the segments of the path and the query', async () => {
    const gateway = await startTwo();
    const { page } = await open(gateway.url);
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
    const { page } = await open(gateway.url.replace('127.0.0.1', 'localhost'));
    const [text = ''] = await page.locator('.example code').allInnerTexts();
    expect(text).toBe(`curl -i http://localhost:${gateway.port}/api/analytics/accounts/`);
    // As behind a proxy that ends TLS and passes another name on.
    await page.route('**/docs', async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replaceAll(
        `http://localhost:${gateway.port}`,
        'http://inside:8080',
      );
      await route.fulfill({ response, body });
    });
    await page.reload();
    expect((await page.locator('.example code').allInnerTexts())[0]).toBe(text);
  });

  it('the API page can be read where no script runs', async () => {
    const { url } = await startTwo();
    const { page } = await open(url, { javaScriptEnabled: false });
    expect(await page.locator('.example pre:visible').count()).toBe(3);
    expect(await page.locator('form:visible').count()).toBe(0);
  });
});
