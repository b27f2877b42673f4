import type { Page } from 'playwright-core';
import { describe, expect, it, onTestFinished } from 'vitest';
import { standInKey } from '../../src/stand-in/stand-in.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchFlags } from '../support/chromium.ts';
import { accounts } from '../support/gateway.ts';
import { formsIn } from '../support/secret-forms.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);

async function openConsole(url: string): Promise<{ page: Page; complaints: string[] }> {
  const { chromium: playwright } = await import('playwright-core');
  const browser = await playwright.launch({ executablePath: chromium ?? '', args: launchFlags });
  onTestFinished(() => browser.close());
  const page = await browser.newPage({ viewport: { width: 360, height: 800 } });
  const complaints: string[] = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) complaints.push(request.url());
  });
  await page.goto(url);
  return { page, complaints };
}

const says = (page: Page, id: string) => page.locator(`#${id}`).innerText();

describe.skipIf(chromium === undefined)('the console in a real browser', { timeout: 120_000 }, () => {
  it('the console shows the state in words, purges, and says when the gateway cannot be reached', async () => {
    const script = enrol('reports.script');
    const pair = await startWith([script.entry], { ADMIN_PORT: '0' });
    for (let more = 0; more < 3; more++) await pair.ask(accounts, { headers: bearer(script.token) });
    const { page, complaints } = await openConsole(`${pair.gateway.adminUrl}/`);

    await expect.poll(() => says(page, 'state')).toBe('Ready');
    expect(await says(page, 'key-says')).toBe('The upstream accepts it.');
    expect(await says(page, 'gate-says')).toMatch(/^Open/);
    expect(await says(page, 'cache')).toMatch(/Answered from memory\s+66\.7 %/);
    expect(await says(page, 'requests')).toMatch(/list-accounts\s+200\s+–\s+3/);
    expect(await says(page, 'callers')).toMatch(/reports\.script\s+3\s+0/);
    expect(formsIn(await page.content(), standInKey)).toEqual([]);
    // A phone's width holds it: wide tables scroll in their own place.
    const width = await page.evaluate('document.documentElement.scrollWidth');
    expect(width).toBeLessThanOrEqual(360);

    // By keyboard alone.
    await page.locator('#which').focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await expect.poll(() => says(page, 'purged')).toMatch(/^Removed reads: 1 \(.* KiB\)\.$/);
    await pair.ask(accounts, { headers: bearer(script.token) });
    expect(pair.standIn.counts.total).toBe(2);
    expect(complaints).toEqual([]);

    await pair.gateway.drain();
    await expect.poll(() => says(page, 'state')).toMatch(/^The gateway cannot be reached since /);
  });
});
