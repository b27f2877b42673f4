import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { HistoryPoint } from '../../src/admin/history.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { findChromium, launchChromium } from '../support/chromium.ts';
import { type FleetMember, startFleet } from '../support/fleet.ts';
import { accounts, type TestGateway } from '../support/gateway.ts';
import { complaintsOf, desktop, phone, viewAs, views, violations } from '../support/own-pages.ts';
import { randomFrom } from '../support/random.ts';
import { redisProgram } from '../support/redis.ts';
import { formsIn } from '../support/secret-forms.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';
import { accountsOf, startWorkspaces } from '../support/workspaces.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);
/** A folder for pictures of the console, to look at after a change of it. */
const pictures = process.env['CONSOLE_PICTURES'];

let browser: Browser;
/** One for all tests: with a new one for each, the browser has half as much work again. */
let page: Page;

/** Goes to a console that may ask `url` alone, and gives what the browser complains of. */
async function openConsole(url: string, viewport = phone): Promise<readonly string[]> {
  await viewAs(page, viewport, 'light');
  const complaints = complaintsOf(page, url);
  await page.goto(url);
  // The next test would hear that a page cannot reach a gateway of this one.
  onTestFinished(() => page.evaluate('gatewayConsole.close()'));
  return complaints;
}

const says = (id: string) => page.locator(`#${id}`).innerText();

/** On a phone the problems must not hide what follows: some lines for each group. */
async function expectShortCards(isPhone: boolean): Promise<void> {
  // At one go: the rows are made anew every two seconds.
  const rows = await page.evaluate<[text: string, height: number][]>(
    '[...document.querySelectorAll("#problems tr")].map((row) => [row.innerText, row.offsetHeight])',
  );
  for (const [text, height] of rows) {
    expect(text).toMatch(/^[a-z-]+\s+× \d+\s[\s\S]*\d\d:\d\d:\d\d/);
    if (isPhone) expect(height).toBeLessThan(260);
  }
  const counts = await page.evaluate<number[]>(
    '[...document.querySelectorAll("#requests tr")].map((row) => row.offsetHeight)',
  );
  // A name, and its status and total in one line below.
  for (const height of counts) if (isPhone) expect(height).toBeLessThan(75);
}

/** Made-up minutes, calm until the last five. */
function pastOf(last: (random: () => number) => Partial<HistoryPoint>): string {
  const random = randomFrom(7);
  const now = Date.now();
  const points = Array.from({ length: 180 }, (_, index) => {
    const requests = 40 + 10 * random();
    const calm = { requests, fromMemory: requests * 0.9, problems: 0, attempts: 2 + random(), pace: 12 };
    const times = {
      callerP50: 0.000_3,
      callerP99: 0.2 + 0.1 * random(),
      upstreamP50: 0.12,
      upstreamP99: 0.3,
    };
    const point = { at: now - (179 - index) * 5_000, ...calm, ...times, saved: requests - 3, waiting: 0 };
    return index < 120 ? point : { ...point, ...last(random) };
  });
  return JSON.stringify(points);
}

interface Scene {
  readonly name: string;
  readonly past: string;
  readonly settings?: Record<string, string>;
  /** Brings a gateway into this state. */
  play(pair: TestGateway, tokens: readonly string[]): Promise<void>;
  readonly state: string;
  readonly says: RegExp;
}

const ask = (pair: TestGateway, token: string | undefined, query = '') =>
  pair.ask(`${accounts}${query}`, { headers: bearer(token ?? '') });

const scenes: readonly Scene[] = [
  {
    name: 'calm',
    past: pastOf(() => ({})),
    async play(pair, tokens) {
      for (const token of tokens) for (let more = 0; more < 4; more++) await ask(pair, token);
    },
    state: 'All is well',
    says: /^$/,
  },
  {
    name: 'storm',
    past: pastOf((random) => ({
      ...{ requests: 160 + 60 * random(), fromMemory: 60, problems: 20 * random(), attempts: 5, pace: 5 },
      ...{ callerP99: 6 + 2 * random(), callerP50: 0.4, waiting: 40 },
    })),
    settings: { REQUEST_TIMEOUT: '40s', RETRY_LIMIT: '20', UPSTREAM_LIMIT: '60/1m,10000/1d' },
    async play(pair, tokens) {
      for (const token of tokens) await ask(pair, token);
      pair.standIn.behave({ status: 429, headers: { 'retry-after': '30' }, body: '{}' });
      for (let more = 0; more < 30; more++)
        void ask(pair, tokens[more % 5 === 0 ? more % 3 : 2], `?${more}`).catch(() => undefined);
      await expect.poll(() => pair.gateway.waiting).toBeGreaterThan(20);
      await pair.ask(accounts);
    },
    state: 'Degraded',
    says: /The upstream limits requests \(429\); the gate is closed for another/,
  },
  {
    name: 'key-refused',
    past: pastOf(() => ({ attempts: 0.1, problems: 4, fromMemory: 38, requests: 42, upstreamP99: null })),
    settings: { UPSTREAM_API_KEY: 'another-key-0123456789' },
    async play(pair, tokens) {
      await Promise.all(tokens.map((token) => ask(pair, token)));
    },
    state: 'Failing',
    says: /The upstream refuses the key [0-9a-f]{8} of env:UPSTREAM_API_KEY/,
  },
  {
    name: 'upstream-down',
    past: pastOf(() => ({ attempts: 0.1, problems: 11, fromMemory: 30, requests: 42, upstreamP99: null })),
    settings: { RETRY_LIMIT: '0' },
    async play(pair, tokens) {
      for (const token of tokens) await ask(pair, token);
      await pair.standIn.refuseConnections(true);
      const isDown = async (): Promise<string | undefined> => {
        await Promise.all(tokens.map((token) => ask(pair, token, `?${Math.random()}`)));
        const { circuit } = (await pair.askAdmin('/status')).json() as { circuit: { state: string } };
        return circuit.state;
      };
      await expect.poll(isDown).toBe('open');
    },
    state: 'Failing',
    says: /The upstream is down: it failed \d+ times in a row/,
  },
];

describe.skipIf(chromium === undefined)('the console in a real browser', { timeout: 120_000 }, () => {
  beforeAll(async () => {
    browser = await launchChromium(chromium ?? '');
    page = await browser.newPage();
    if (pictures !== undefined) mkdirSync(pictures, { recursive: true });
  });
  afterAll(() => browser?.close());

  it('the console finds callers by name where there are 20 or more, and has no search where there are fewer', async () => {
    const many = Array.from({ length: 25 }, (_, number) => enrol(`caller-${number}`).entry);
    const pair = await startWith(many, { ADMIN_PORT: '0' });
    await openConsole(`${pair.gateway.adminUrl}/`, desktop);
    await expect.poll(() => page.locator('#callers tr').count()).toBe(25);
    await page.locator('#search').fill('CALLER-1');
    await expect.poll(() => page.locator('#callers tr').count()).toBe(11);
    await page.locator('#search').fill('nothing');
    await expect.poll(() => page.getByText('No caller has this in its name.').isVisible()).toBe(true);
    const few = await startWith(many.slice(0, 19), { ADMIN_PORT: '0' });
    await openConsole(`${few.gateway.adminUrl}/`, desktop);
    await expect.poll(() => page.locator('#callers tr').count()).toBe(19);
    expect(await page.locator('#search').isVisible()).toBe(false);
  });

  it('the console asks for the token of ADMIN_TOKEN_FROM where a purge needs it', async () => {
    const pair = await startWith([enrol('script').entry], {
      ...{ ADMIN_PORT: '0', ADMIN_HOST: '0.0.0.0' },
      ...{ ADMIN_TOKEN_FROM: 'env:TEST_TOKEN', TEST_TOKEN: 'a-token-for-changes-0123' },
    });
    const url = `${pair.gateway.adminUrl?.replace('0.0.0.0', '127.0.0.1')}/`;
    await openConsole(url, desktop);
    await page.locator('#token').fill('wrong');
    await page.locator('#go').click();
    await expect.poll(() => says('purged')).toMatch(/needs the token of ADMIN_TOKEN_FROM/);
    await page.locator('#token').fill('a-token-for-changes-0123');
    await page.locator('#go').click();
    await expect.poll(() => says('purged')).toMatch(/^Removed reads: 0/);
  });

  it.for(scenes)(
    'the console shows $name truthfully, without a finding of axe, in light and dark, on desktop and phone',
    async ({ name, past, settings = {}, play, state, says: reason }) => {
      const callers = ['dashboard', 'reports-nightly', 'export'].map((caller) => enrol(caller));
      const entries = callers.map(({ entry }) => entry);
      const pair = await startWith(entries, { ADMIN_PORT: '0', ...settings });
      await play(
        pair,
        callers.map(({ token }) => token),
      );
      const complaints = await openConsole(`${pair.gateway.adminUrl}/`, desktop);
      await expect.poll(() => says('state')).toBe(state);
      // A past of 15 minutes takes 15 minutes: this one is made up, and everything else is the gateway's own.
      await page.evaluate(`gatewayConsole.drawAll(${past})`);
      for (const { device, viewport, colorScheme } of views) {
        await viewAs(page, viewport, colorScheme);
        const view = `${device}-${colorScheme}`;
        await expect.poll(() => says('state')).toBe(state);
        expect(await says('reasons')).toMatch(reason);
        if (settings['UPSTREAM_LIMIT'] !== undefined) {
          expect(await says('callers-says')).toMatch(/^export asks most: 8\d % of what waits/);
          expect(await page.locator('#callers tr.busy').innerText()).toMatch(/^export\s/);
          expect(await says('limits')).toMatch(
            /^Told limit: \d+ of 60 in 1m used, \d+ left, resets at .*Told limit: \d+ of 10,000 in 1d used/s,
          );
          expect(await page.locator('#limits progress').count()).toBe(2);
        }
        expect(await page.title()).toBe(
          state === 'All is well' ? 'Analytics gateway' : `${state} \u2013 Analytics gateway`,
        );
        expect(await page.locator('#icon').getAttribute('href')).toContain(
          { 'All is well': '15703f', Degraded: 'b07400', Failing: 'b3261e' }[state],
        );
        expect(await page.locator('.chart canvas').count()).toBe(4);
        // Times by powers of ten: beside a wait of seconds, answers of milliseconds are still told apart.
        const [atMs, at100Ms, at10S] = (await page.evaluate(
          `[0.001, 0.1, 10].map((seconds) => gatewayConsole.charts.get('times').valToPos(seconds, 'y'))`,
        )) as [number, number, number];
        expect(atMs - at100Ms).toBeCloseTo(at100Ms - at10S);
        expect(atMs - at100Ms).toBeGreaterThan(20);
        expect(await violations(page), `${name} ${view}`).toEqual([]);
        const width = await page.evaluate('document.documentElement.scrollWidth');
        expect(width).toBeLessThanOrEqual(viewport.width);
        if (pictures !== undefined) {
          await page.screenshot({ path: join(pictures, `${name}-${view}.png`), fullPage: true });
        }
        await expectShortCards(viewport === phone);
        expect(complaints).toEqual([]);
      }
    },
  );

  it('the console draws a dot for a value that has no other before or after it', async () => {
    const { gateway } = await startWith([], { ADMIN_PORT: '0' });
    await openConsole(`${gateway.adminUrl}/`, desktop);
    const drawn = await page.evaluate(`(async () => {
      // What the gateway tells would be drawn in its place.
      gatewayConsole.close();
      const at = Date.parse('2026-11-22T15:00:02Z');
      gatewayConsole.drawAll(Array.from({ length: 9 }, (_one, index) => ({ at: at + 5000 * index, callerP50: index === 4 ? 0.03 : null })));
      await new Promise(requestAnimationFrame);
      const chart = gatewayConsole.charts.get('times');
      const place = [chart.valToPos(at / 1000 + 20, 'x', true), chart.valToPos(0.03, 'y', true)].map(Math.round);
      return chart.ctx.getImageData(...place, 1, 1).data[3];
    })()`);
    expect(drawn).toBe(255);
  });

  it('the console has a row for each of several workspaces, and a page for each behind its name', async () => {
    const { gateway, workspace } = await startWorkspaces(['', 'emea'], { ADMIN_PORT: '0' });
    await gateway.ask(accountsOf('emea'));
    workspace('emea').standIn.keys.clear();
    await gateway.ask(accountsOf('emea', '?page=2'));
    const complaints = await openConsole(gateway.gateway.adminUrl ?? '', desktop);
    const rows = page.locator('#workspaces tr');
    await rows.nth(1).waitFor();
    expect(await rows.allInnerTexts()).toEqual([
      expect.stringMatching(/^the one without a name\s+Loaded, not used yet\./),
      expect.stringMatching(/^emea\s+The upstream refuses it/),
    ]);
    // The state has its colour, and of each only what is bad.
    expect(await page.locator('#workspaces td.bad').allInnerTexts()).toEqual([
      expect.stringMatching(/^The upstream refuses it/),
      'Nothing but trials is sent.',
    ]);
    expect(await page.locator('#of-key').isVisible()).toBe(false);
    expect(await says('reasons')).toContain('emea: The upstream refuses the key');
    expect(await violations(page)).toEqual([]);

    await page.locator('#workspaces a', { hasText: 'emea' }).click();
    await page.locator('#key dd').first().waitFor();
    expect(await says('key-says')).toContain('The upstream refuses it');
    expect(await says('about')).toContain('Workspace emea');
    expect(await page.locator('#each').isVisible()).toBe(false);
    // Its own charts, callers and problems.
    expect(await page.locator('.chart canvas').count()).toBe(4);
    expect(await says('problems')).toMatch(/^emea: upstream-key-rejected\s+× 1\s/);
    if (pictures !== undefined)
      await page.screenshot({ path: join(pictures, 'workspace.png'), fullPage: true });
    expect(await violations(page)).toEqual([]);
    // One read of this workspace is stored, and none of the other is purged with it.
    await page.locator('#go').click();
    await page.locator('#purged', { hasText: 'Removed reads: 1' }).waitFor();
    await page.locator('#back a').click();
    await rows.nth(1).waitFor();
    expect(complaints).toEqual([]);
  });

  it.skipIf(redisProgram === undefined)(
    'the console tells the gateways of a fleet apart by id, with what each and all have done',
    async () => {
      const { members } = await startFleet(2, { ADMIN_PORT: '0' });
      const [first, second] = members as [FleetMember, FleetMember];
      for (let more = 0; more < 3; more++) await second.ask(`${accounts}?page=${more}`);
      await expect
        .poll(
          async () => (await first.sharedStore()).gateways.map(({ figures }) => figures?.requests).sort(),
          {
            timeout: 60_000,
          },
        )
        .toEqual([0, 3]);
      await openConsole(`${first.gateway.adminUrl}/`, desktop);
      await page.locator('#gateways tr').nth(2).waitFor();
      const rows = await page.locator('#gateways tr').allInnerTexts();
      expect(rows.filter((row) => /^[0-9a-f]{8} \(this one\)\s/.test(row))).toHaveLength(1);
      expect(new Set(rows.map((row) => row.split(/\s/)[0])).size).toBe(3);
      expect(rows[2]).toMatch(/^All\s+3\s+\d+\s+0$/);
      expect(await violations(page)).toEqual([]);
      if (pictures !== undefined)
        await page.screenshot({ path: join(pictures, 'fleet.png'), fullPage: true });
    },
  );

  it('the console says that a told limit holds requests, and calls no state well that it has something to say of', async () => {
    const script = enrol('script');
    const pair = await startWith([script.entry], {
      ...{ ADMIN_PORT: '0', REQUEST_TIMEOUT: '2s', UPSTREAM_LIMIT: '5/10m' },
    });
    pair.standIn.behave({ body: JSON.stringify([`${pair.standIn.url}/x`]) });
    for (let more = 0; more < 8; more++) await ask(pair, script.token, `?${more}`);
    await openConsole(`${pair.gateway.adminUrl}/`, desktop);
    await expect.poll(() => says('gate-says')).toMatch(/^Open, within the told limit/);
    expect(await says('limits')).toMatch(/^Told limit: \d of 5 in 10m used, \d left, resets at /);
    expect(await says('problems')).toMatch(/REQUEST_TIMEOUT\s[\s\S]*UPSTREAM_LIMIT/);
    expect(await says('reasons')).toMatch(/sends its token past the gateway/);
    expect(await says('state')).toBe('Works, with something to look at');
  });

  it('the console shows the state in words, purges, and says when the gateway cannot be reached', async () => {
    const script = enrol('reports.script');
    const pair = await startWith([script.entry], { ADMIN_PORT: '0' });
    for (let more = 0; more < 3; more++) await pair.ask(accounts, { headers: bearer(script.token) });
    const complaints = await openConsole(`${pair.gateway.adminUrl}/`);

    await expect.poll(() => says('state')).toBe('All is well');
    expect(await says('key-says')).toBe('The upstream accepts it.');
    expect(await says('gate-says')).toMatch(/^Open/);
    expect(await says('cache')).toMatch(/From memory\s+66\.7 %/);
    expect(await says('requests')).toMatch(
      /list-accounts\s+Status\s+200\s+Total\s+3|list-accounts\s+200\s+3/,
    );
    expect(await says('callers')).toMatch(/reports\.script[\s\S]*3/);
    expect(formsIn(await page.content(), standInKey)).toEqual([]);
    // A phone's width holds it, and nothing needs to be scrolled sideways.
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);

    // By keyboard alone.
    await page.locator('#which').focus();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await expect.poll(() => says('purged')).toMatch(/^Removed reads: 1 \(.* KiB\)\.$/);
    await pair.ask(accounts, { headers: bearer(script.token) });
    expect(pair.standIn.counts.total).toBe(2);
    // It is told, and does not ask again.
    await expect.poll(() => says('cache')).toMatch(/Stored reads\s+1/);
    expect(complaints).toEqual([]);

    await pair.gateway.drain();
    await expect.poll(() => says('state')).toMatch(/^The gateway cannot be reached since /);
    expect(await page.title()).toMatch(/^The gateway cannot be reached/);
  });
});
