import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { startWith } from '../support/callers-files.ts';
import { findChromium, howToInstall, launchChromium, launchFlags } from '../support/chromium.ts';
import { accounts, startPair } from '../support/gateway.ts';
import {
  audience,
  issuerName,
  makeSigningKey,
  type SigningKey,
  signJwt,
  startIssuer,
} from '../support/issuer.ts';
import { formsOf } from '../support/secret-forms.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const script = readFileSync(new URL('frontend.js', import.meta.url), 'utf8');

/** A frontend's own server, at an origin of its own. @returns the origin, as the browser sends it */
async function servePage(): Promise<string> {
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
function callFrontend<T>(page: Page, name: string, ...args: readonly unknown[]): Promise<T> {
  return page.evaluate<T>(`frontend.${name}(...${JSON.stringify(args)})`);
}

interface Watch {
  /** What the DevTools protocol told: requests, responses, their fields as they went over the wire, bodies. */
  readonly traffic: readonly string[];
  /** The status of each response for an address, as it came over the wire (a 304 stays one). */
  statuses(url: string): readonly number[];
  /** Resolves when the bodies that were asked for are here. */
  settle(): Promise<void>;
}

/** Watches a page from now on. */
async function watchTraffic(context: BrowserContext, page: Page): Promise<Watch> {
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
async function storageOf(context: BrowserContext, page: Page): Promise<string> {
  const stored = await callFrontend<object>(page, 'stored');
  return JSON.stringify([stored, await context.storageState({ indexedDB: true })]);
}

/** Every byte below a folder: the browser's profile, its cache on disk, its log of the network. */
function bytesBelow(folder: string): string {
  const parts: string[] = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) parts.push(readFileSync(join(entry.parentPath, entry.name)).toString('latin1'));
  }
  return parts.join('\n');
}

const chromium = findChromium(process.env);
const isRequired = process.env['REQUIRE_BROWSER'] === 'true';

/** Every form of the upstream key that occurs in a text. */
function found(text: string): string[] {
  return formsOf(standInKey)
    .filter(({ text: form }) => text.includes(form))
    .map(({ name }) => name);
}

/** A browser with a profile of its own that writes down its whole network traffic. */
async function launchWithProfile(
  executablePath: string,
): Promise<{ context: BrowserContext; folder: string }> {
  const { chromium: playwright } = await import('playwright-core');
  const folder = mkdtempSync(join(tmpdir(), 'gateway-browser-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  const context = await playwright.launchPersistentContext(join(folder, 'profile'), {
    executablePath,
    args: [
      ...launchFlags,
      `--log-net-log=${join(folder, 'net-log.json')}`,
      '--net-log-capture-mode=Everything',
    ],
  });
  onTestFinished(() => context.close());
  return { context, folder };
}

interface Seen {
  /** What the page may know of the answer; `undefined` where the browser kept all of it from the page. */
  readonly answer?: {
    readonly status: number;
    readonly fields: Record<string, string>;
    readonly body: string;
  };
  readonly failure?: string;
}

/** What a script of the page sees when it asks the gateway. */
function fetchIn(page: Page, url: string, headers: Record<string, string>): Promise<Seen> {
  return callFrontend(page, 'ask', url, headers);
}

/** What comes of loading the gateway's answers without leave. */
const nothing = { opaque: 'refused', img: 'refused', script: 'refused', iframe: 'unreadable' };

if (chromium === undefined && !isRequired) {
  process.stderr.write(`\n  SKIPPED test/browser: ${howToInstall}\n\n`);
}

if (chromium === undefined && isRequired) {
  it('a browser is required (REQUIRE_BROWSER)', () => {
    expect.fail(howToInstall);
  });
}

describe.skipIf(chromium === undefined)('in a real browser', { timeout: 120_000 }, () => {
  let key: SigningKey;
  let browser: Browser;
  beforeAll(async () => {
    key = await makeSigningKey('one');
    browser = await launchChromium(chromium ?? '');
  });
  afterAll(() => browser?.close());

  async function newContext(): Promise<BrowserContext> {
    const context = await browser.newContext();
    onTestFinished(() => context.close());
    return context;
  }

  async function start(context: BrowserContext) {
    const origin = await servePage();
    const issuer = await startIssuer([key.jwk]);
    const match = { email: '*@example.com' };
    const staff = { name: 'staff', jwt: { issuer: issuerName, audience, jwks: issuer.jwks, match } };
    const limit = { perSecond: 100, burst: 100 };
    const pair = await startWith([{ ...staff, limit }], { CORS_ORIGINS: origin, RETRY_LIMIT: '0' });
    const open = async (at: string) => {
      const page = await context.newPage();
      const watch = await watchTraffic(context, page);
      await page.goto(at);
      return { page, watch };
    };
    return { ...pair, origin, open };
  }

  it('a page of a listed origin uses the gateway with a JWT and meets no trace of the key', async () => {
    const { context, folder } = await launchWithProfile(chromium ?? '');
    const { url, standIn, origin, open, logLines } = await start(context);
    const { page, watch } = await open(origin);
    const jwt = await signJwt(key);
    const known = { authorization: `Bearer ${jwt}` };
    const ask = (path: string, headers: Record<string, string> = known) =>
      fetchIn(page, `${url}${path}`, headers);

    const first = await ask(accounts);
    expect(first.answer).toMatchObject({ status: 200, fields: { 'content-type': 'application/json' } });
    // What tells a page how its answer came about may be read by it.
    for (const name of ['cache-status', 'etag', 'ratelimit', 'ratelimit-policy', 'x-request-id', 'via']) {
      expect(first.answer?.fields).toHaveProperty(name);
    }

    // The browser keeps the answer and asks the gateway whether it still holds; the page notices nothing.
    const again = await ask(accounts);
    expect(again.answer).toMatchObject({ status: 200, body: first.answer?.body });
    // DevTools tells the fields of a response on a way of its own, which may be later than the page.
    await expect
      .poll(() => watch.statuses(`${url}${accounts}`).filter((status) => status !== 204))
      .toEqual([200, 304]);
    expect(logLines().filter(({ status, caller }) => status === 304 && caller === 'staff')).toHaveLength(1);
    expect(standIn.requests).toHaveLength(1);

    // Problems can be read like answers.
    const problem = (seen: Seen) => JSON.parse(seen.answer?.body ?? '{}') as unknown;
    expect(problem(await ask('/api/users/api-keys/'))).toMatchObject({ code: 'caller-forbidden' });
    expect(problem(await ask(accounts, { authorization: 'Bearer forged' }))).toMatchObject({
      code: 'caller-unauthenticated',
    });
    expect(problem(await ask(accounts, {}))).toMatchObject({ code: 'caller-unauthenticated' });
    expect(problem(await ask('/api/nothing'))).toMatchObject({ code: 'unknown-operation' });

    // An upstream that gives the key away, in its fields and in its body.
    standIn.behave({
      headers: { 'x-echo': standInKey, 'set-cookie': `key=${standInKey}`, server: standInKey },
    });
    expect(problem(await ask(`${accounts}?in-fields`))).toMatchObject({ code: 'upstream-invalid-response' });
    standIn.behave({ body: JSON.stringify({ key: standInKey }) });
    expect(problem(await ask(`${accounts}?in-body`))).toMatchObject({ code: 'upstream-invalid-response' });
    standIn.behave(undefined);
    expect(standIn.requests.map(({ key: sent }) => sent)).toEqual([standInKey, standInKey, standInKey]);

    await watch.settle();
    const traffic = watch.traffic.join('\n');
    const storage = await storageOf(context, page);
    await context.close();
    const disk = bytesBelow(folder);
    // The search sees what there is: the token that was sent, the body that came, in each of its places.
    const marker = first.answer?.body.slice(0, 60) ?? '';
    expect(traffic).toContain(jwt);
    expect(traffic).toContain(JSON.stringify(marker).slice(1, -1));
    expect(storage).toContain(accounts);
    expect(disk).toContain(jwt);
    expect(disk).toContain(marker);
    expect(found(traffic)).toEqual([]);
    expect(found(storage)).toEqual([]);
    expect(found(disk)).toEqual([]);
  });

  it('a page of an origin that is not listed gets nothing, whatever it tries', async () => {
    const { url, standIn, open, logLines } = await start(await newContext());
    const stranger = await servePage();
    const { page, watch } = await open(stranger);
    const known = { authorization: `Bearer ${await signJwt(key)}` };

    // With a credential there is a preflight, and nothing after it.
    const asked = await fetchIn(page, `${url}${accounts}`, known);
    expect(asked).toEqual({ failure: expect.stringContaining('Failed to fetch') });
    // DevTools tells the fields of a response on a way of its own, which may be later than the page.
    await expect.poll(() => watch.statuses(`${url}${accounts}`)).toEqual([403]);
    // Without one the request goes out, names no caller, and the page may not even read the 401.
    expect(await fetchIn(page, `${url}${accounts}`, {})).toEqual({
      failure: expect.stringContaining('Failed to fetch'),
    });
    expect(await callFrontend(page, 'loadWithoutLeave', `${url}${accounts}`)).toEqual(nothing);
    expect(standIn.requests).toHaveLength(0);
    expect(logLines().some(({ status }) => status === 200 || status === 304)).toBe(false);
  });

  it('a page of another origin cannot use a gateway that needs no credential', async () => {
    const listed = await servePage();
    const { url, standIn, logLines } = await startPair({ CORS_ORIGINS: listed });
    const page = await (await newContext()).newPage();
    await page.goto(await servePage());
    expect(await fetchIn(page, `${url}${accounts}`, {})).toHaveProperty('failure');
    expect(await callFrontend(page, 'loadWithoutLeave', `${url}${accounts}`)).toEqual(nothing);
    await Promise.all([
      page.waitForURL(`${url}${accounts}`),
      page.evaluate(`location = ${JSON.stringify(`${url}${accounts}`)}`),
    ]);
    expect(await page.evaluate('document.body.textContent')).toContain('origin-not-allowed');
    const statuses = logLines().flatMap(({ status }) => (status === undefined ? [] : [status]));
    expect(statuses).toEqual(Array(6).fill(403));
    expect(standIn.requests).toHaveLength(0);

    await page.goto(listed);
    expect(await fetchIn(page, `${url}${accounts}`, {})).toMatchObject({ answer: { status: 200 } });
    // An address typed by the user comes from no page.
    expect((await page.goto(`${url}${accounts}`))?.status()).toBe(200);
    expect(standIn.requests).toHaveLength(1);
  });

  it('a page of a public address needs a secure context and the permission of its user (Local Network Access)', async ({
    skip,
  }) => {
    const origin = await servePage();
    const { port } = new URL(origin);
    const insecure = `http://page.test:${port}`;
    const pair = await startPair({ CORS_ORIGINS: `${origin},${insecure}` });
    for (const space of ['loopback', 'local']) {
      const spaces = `127.0.0.1:${port}=public,127.0.0.1:${pair.port}=${space}`;
      const browserOutside = await launchChromium(chromium ?? '', [
        `--ip-address-space-overrides=${spaces}`,
        '--host-resolver-rules=MAP page.test 127.0.0.1',
      ]);
      onTestFinished(() => browserOutside.close());
      if (Number.parseInt(browserOutside.version(), 10) < 142) skip('Chromium before 142 asks for nothing');
      const seenFrom = async (at: string, permissions: readonly string[]) => {
        const context = await browserOutside.newContext({ permissions: [...permissions] });
        const page = await context.newPage();
        await page.goto(at);
        const seen = await fetchIn(page, `${pair.url}${accounts}`, {});
        await context.close();
        return seen;
      };
      const granted = ['local-network-access'];
      expect(await seenFrom(origin, granted)).toMatchObject({ answer: { status: 200 } });
      expect(await seenFrom(origin, [])).toHaveProperty('failure');
      expect(await seenFrom(insecure, granted)).toHaveProperty('failure');
    }
    // The browser asks its user and not the gateway: of the others nothing has come, no preflight either.
    const lines = pair.logLines().filter(({ msg }) => msg === 'request');
    expect(lines.map(({ method, status }) => [method, status])).toEqual([
      ['GET', 200],
      ['GET', 200],
    ]);
  });
});
