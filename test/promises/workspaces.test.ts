import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { bearer, enrol, textOf, writeCallersFile } from '../support/callers-files.ts';
import { parseExposition } from '../support/exposition-parser.ts';
import type { TestGateway } from '../support/gateway.ts';
import { until } from '../support/process.ts';
import { redisProgram, startRedis } from '../support/redis.ts';
import { startStandIn } from '../support/stand-in/stand-in.ts';
import { accountsOf, baseOf, keyOf, startWorkspaces } from '../support/workspaces.ts';

/** Commands that give a key once so many of them run at the same time. */
function meetingOf(count: number) {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-meeting-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const script = (name: string, key: string): string =>
    `exec:sh -c 'touch ${folder}/${name}; until [ $(ls ${folder} | wc -l) -ge ${count} ]; do sleep 0.02; done; echo ${key}'`;
  return script;
}

/** Which keys a stand-in was sent. */
const keysSent = (requests: readonly { readonly headers: Readonly<Record<string, unknown>> }[]) => [
  ...new Set(requests.map(({ headers }) => headers['x-api-key'])),
];

describe('the base address of a workspace', () => {
  it('a request to /w/NAME/api goes to that workspace’s upstream with that workspace’s key alone', async () => {
    const { gateway, workspaces } = await startWorkspaces(['', 'emea', 'asia-pacific']);
    const bodies = new Set<string>();
    for (const { name, standIn } of workspaces) {
      const { status, body } = await gateway.ask(accountsOf(name));
      expect(status).toBe(200);
      bodies.add(body.toString());
      expect(keysSent(standIn.requests)).toEqual([keyOf(name)]);
    }
    expect(bodies.size).toBe(3);
  });

  it('a script changes its base address and nothing else: paths, queries, HEAD and conditions are as below /api', async () => {
    const { gateway, workspace } = await startWorkspaces(
      ['emea', 'apac'],
      {
        UPSTREAM_READS: '/analytics/reports/:id/',
      },
      { reads: ['/analytics/reports/:id/'] },
    );
    const base = baseOf('emea');
    const { status, headers } = await gateway.ask(`${base}/analytics/accounts?page=2`);
    expect(status).toBe(200);
    expect((await gateway.ask(`${base}/analytics/accounts?page=2`, { method: 'HEAD' })).status).toBe(200);
    const condition = { 'if-none-match': String(headers.etag) };
    expect((await gateway.ask(`${base}/analytics/accounts?page=2`, { headers: condition })).status).toBe(304);
    expect((await gateway.ask(`${base}/analytics/reports/7/`)).status).toBe(200);
    expect(workspace('emea').standIn.requests.map(({ target }) => target)).toEqual([
      '/api/analytics/accounts/?page=2',
      '/api/analytics/reports/7/',
    ]);
    expect((await gateway.ask(`${base}/analytics/nothing/`)).json()).toMatchObject({
      code: 'unknown-operation',
      workspace: 'emea',
      detail: expect.stringContaining('GET /w/emea/api/analytics/accounts/,'),
    });
    expect((await gateway.ask(accountsOf('emea'), { method: 'POST' })).status).toBe(405);
    expect((await gateway.ask('/w/emea/other')).status).toBe(404);
  });

  it('without WORKSPACES no path below /w/ is anything', async () => {
    const { gateway } = await startWorkspaces(['']);
    expect((await gateway.ask(accountsOf(''))).status).toBe(200);
    expect((await gateway.ask(accountsOf('emea'))).json()).toMatchObject({ code: 'unknown-operation' });
  });

  it('/api is the only workspace of a gateway that has no other, and its log lines name it', async () => {
    const { gateway } = await startWorkspaces(['emea']);
    expect((await gateway.ask(accountsOf(''))).status).toBe(200);
    expect(gateway.logLines().find(({ msg }) => msg === 'request')).toMatchObject({ workspace: 'emea' });
  });
});

describe('the workspaces of a caller', () => {
  it('a caller reaches the workspaces that it is granted, and gets the same answer for any other name', async () => {
    const one = enrol('one', { workspaces: ['emea'] });
    const two = enrol('two', { workspaces: ['emea', 'apac'] });
    const usual = enrol('usual');
    const both = enrol('both', { workspaces: ['-', 'apac'] });
    const none = enrol('none', { workspaces: [] });
    const { gateway, workspace } = await startWorkspaces(['', 'emea', 'apac'], {
      CALLERS_FILE: writeCallersFile([one, two, usual, both, none].map(({ entry }) => entry)),
    });
    const ask = (who: { token: string }, path: string) => gateway.ask(path, { headers: bearer(who.token) });
    const reached = async (who: { token: string }) => {
      const found: string[] = [];
      for (const base of ['/api', '/w/emea/api', '/w/apac/api', '/w/nowhere/api', '/w/-/api']) {
        const { status } = await ask(who, `${base}/analytics/accounts/`);
        if (status === 200) found.push(base);
        else expect(status).toBe(403);
      }
      return found;
    };
    // The only one that it is granted.
    expect(await reached(one)).toEqual(['/api', '/w/emea/api']);
    // The unnamed one, which it is not granted.
    expect(await reached(two)).toEqual(['/w/emea/api', '/w/apac/api']);
    expect(await reached(usual)).toEqual(['/api']);
    expect(await reached(both)).toEqual(['/api', '/w/apac/api']);
    expect(await reached(none)).toEqual([]);
    expect(keysSent(workspace('emea').standIn.requests)).toEqual([keyOf('emea')]);

    // Neither the path nor anything below it tells whether there is such a workspace.
    const [known, unknown] = await Promise.all(
      ['apac', 'nowhere'].map((name) => ask(one, `/w/${name}/api/analytics/nothing/`)),
    );
    const shown = (came: typeof known) => ({
      ...came?.json(),
      requestId: '',
      length: came?.headers['content-length'],
    });
    expect(shown(known)).toEqual(shown(unknown));
    expect(known?.json()).toMatchObject({
      code: 'caller-forbidden',
      detail: expect.stringContaining('/api, /w/emea/api.'),
    });
    expect(known?.json()).not.toHaveProperty('workspace');
  });

  it('a caller that is not known gets 401 for every workspace, there or not', async () => {
    const { entry } = enrol('one', { workspaces: ['emea'] });
    const { gateway } = await startWorkspaces(['emea', 'apac'], { CALLERS_FILE: writeCallersFile([entry]) });
    for (const name of ['emea', 'apac', 'nowhere']) {
      expect((await gateway.ask(accountsOf(name))).json()).toMatchObject({ code: 'caller-unauthenticated' });
    }
  });

  it('the API document lists the base addresses that its reader may use, and no workspace to a reader without a token', async () => {
    const one = enrol('one', { workspaces: ['emea'] });
    const two = enrol('two', { workspaces: ['emea', 'apac'] });
    const { gateway } = await startWorkspaces(['', 'emea', 'apac'], {
      CALLERS_FILE: writeCallersFile([one.entry, two.entry]),
    });
    const serversFor = async (headers = {}) => {
      const document = (await gateway.ask('/openapi.json', { headers })).json() as {
        servers: { url: string }[];
      };
      return document.servers.map(({ url }) => url);
    };
    expect(await serversFor(bearer(one.token))).toEqual(['/api', '/w/emea/api']);
    expect(await serversFor(bearer(two.token))).toEqual(['/w/emea/api', '/w/apac/api']);
    expect(await serversFor()).toEqual(['/api']);
  });

  it('the documents show the anonymous caller, and one with a token, base addresses that it may use', async () => {
    const open = (await startWorkspaces(['emea', 'apac'])).gateway;
    const urlsOf = (document: unknown) =>
      (document as { servers: { url: string; description: string }[] }).servers.map(({ url }) => url);
    expect(urlsOf((await open.ask('/openapi.json')).json())).toEqual(['/w/emea/api', '/w/apac/api']);
    expect((await open.ask('/')).json()).toMatchObject({ base: '/w/emea/api' });

    const two = enrol('two', { workspaces: ['apac', 'emea'] });
    const none = enrol('none', { workspaces: [] });
    const { gateway } = await startWorkspaces(['emea', 'apac'], {
      CALLERS_FILE: writeCallersFile([two.entry, none.entry]),
    });
    const pageFor = async (token: string) =>
      (await gateway.ask('/docs', { headers: bearer(token) })).body.toString();
    const page = await pageFor(two.token);
    expect(page).toContain('data-path="/w/apac/api/analytics/accounts/"');
    expect(page).toMatch(/http:\/\/[^/]+\/w\/apac\/api\/analytics\/accounts\//);
    expect(page).not.toMatch(/[^c]\/api\/analytics\/accounts\//);
    expect(await pageFor(none.token)).toContain('No workspace is granted to you.');
    expect((await gateway.ask('/openapi.json', { headers: bearer(none.token) })).json()).toMatchObject({
      servers: [{ description: expect.stringContaining('No workspace is granted to you.') }],
    });
  });

  it('reading the callers file again grants a workspace and takes another', async () => {
    const one = enrol('one', { workspaces: ['emea'] });
    const file = writeCallersFile([one.entry]);
    const { gateway } = await startWorkspaces(['emea', 'apac'], { CALLERS_FILE: file });
    const statusIn = async (name: string) =>
      (await gateway.ask(accountsOf(name), { headers: bearer(one.token) })).status;
    expect([await statusIn('emea'), await statusIn('apac')]).toEqual([200, 403]);
    writeFileSync(file, textOf([{ ...one.entry, workspaces: ['apac'] }]));
    await until(async () => (await statusIn('apac')) === 200);
    // What is stored is given to no caller that is not granted it any more.
    expect(await statusIn('emea')).toBe(403);
  });

  it('a credential in the name of a workspace is refused as one in any URL, and stands in no log', async () => {
    const one = enrol('one', { workspaces: ['emea'] });
    const { gateway } = await startWorkspaces(['emea', 'apac'], {
      CALLERS_FILE: writeCallersFile([one.entry]),
    });
    for (const secret of [one.token, keyOf('apac')]) {
      const path = `/w/${encodeURIComponent(secret)}/api/analytics/accounts/`;
      expect((await gateway.ask(path, { headers: bearer(one.token) })).json()).toMatchObject({
        code: 'invalid-request',
      });
    }
    expect(gateway.logText()).not.toMatch(/wag_|wa_standin/);
  });
});

describe('the keys of several workspaces', () => {
  it('equal keys in two workspaces are warned of once, at the start and after a rotation', async () => {
    const { gateway, workspace } = await startWorkspaces(['emea', 'apac', 'staging'], {
      UPSTREAM_API_KEY_FROM_STAGING: 'env:SHARED_KEY',
      SHARED_KEY: keyOf('emea'),
    });
    const warnings = () =>
      gateway.logLines().filter(({ msg }) => String(msg).startsWith('workspaces have the same key'));
    expect(warnings()).toMatchObject([{ level: 'warn', workspaces: 'emea, staging' }]);
    workspace('apac').putKey(keyOf('emea'));
    await gateway.gateway.reload();
    expect(warnings()).toHaveLength(2);
    expect(warnings()[1]).toMatchObject({ workspaces: 'emea, apac, staging' });
    await gateway.gateway.reload();
    expect(warnings()).toHaveLength(2);
  });

  it('an answer that holds the key of another workspace is not passed on, in whatever form it stands there', async () => {
    const { gateway, workspace } = await startWorkspaces(['', 'emea', 'apac']);
    const { standIn } = workspace('emea');
    for (const other of ['', 'apac', 'emea']) {
      standIn.behave({ body: JSON.stringify({ text: Buffer.from(keyOf(other)).toString('base64') }) });
      const { body } = await gateway.ask(accountsOf('emea', `?of=${other}`));
      expect(JSON.parse(body.toString())).toMatchObject({
        code: 'upstream-invalid-response',
        workspace: 'emea',
      });
    }
    const leaks = gateway.logLines().filter(({ kind }) => kind === 'leak');
    expect(leaks.map(({ workspace, msg }) => [workspace, String(msg).includes('another workspace')])).toEqual(
      [
        ['emea', true],
        ['emea', true],
        ['emea', false],
      ],
    );
    expect(gateway.logText()).not.toContain('wa_standin');
  });

  it('stores are asked at once: a start waits for the slowest, and not for one after the other', async () => {
    // Each command waits for the others, so none would end if they were run one after the other.
    const script = meetingOf(3);
    const names = ['one', 'two', 'three'];
    const { gateway } = await startWorkspaces(
      names,
      Object.fromEntries(
        names.map((name) => [`UPSTREAM_API_KEY_FROM_${name.toUpperCase()}`, script(name, keyOf(name))]),
      ),
    );
    await until(() => gateway.logLines().filter(({ kind }) => kind === 'loaded').length === 3);
  });

  it('one store that gives no key keeps no other workspace from answering, and is asked until it gives one', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gateway-late-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const { gateway, workspace } = await startWorkspaces(['emea', 'apac'], {
      UPSTREAM_API_KEY_FROM_APAC: `exec:cat ${folder}/key`,
    });
    expect((await gateway.ask(accountsOf('emea'))).status).toBe(200);
    expect((await gateway.ask(accountsOf('apac'))).json()).toMatchObject({ code: 'upstream-key-missing' });
    expect(workspace('apac').standIn.counts.total).toBe(0);
    // What a caller of a workspace with a key writes is searched for the keys that are known.
    const headers = { 'x-request-id': 'my-own-id' };
    const requestIdOf = async (name: string) =>
      (await gateway.ask(`${baseOf(name)}/nothing`, { headers })).headers['x-request-id'];
    expect(await requestIdOf('emea')).toBe('my-own-id');
    expect(await requestIdOf('apac')).not.toBe('my-own-id');
    const pathOf = (name: string) =>
      gateway
        .logLines()
        .find((line) => line['workspace'] === name && line['problem'] === 'unknown-operation');
    expect(pathOf('emea')).toMatchObject({ path: '/w/emea/api/nothing' });
    expect(pathOf('apac')).toMatchObject({ path: '[a credential]' });
    // The time in which the first key is expected is not over.
    expect((await gateway.ask('/readyz')).status).toBe(503);
    writeFileSync(join(folder, 'key'), keyOf('apac'));
    await until(async () => (await gateway.ask(accountsOf('apac'))).status === 200);
    expect((await gateway.ask('/readyz')).status).toBe(200);
  });
});

describe.skipIf(redisProgram === undefined)('workspaces of gateways that share a store', () => {
  it('each workspace has records of its own there: an answer of one is found in no other, were the key the same', async () => {
    await using redis = await startRedis();
    const upstream = await startStandIn({ key: keyOf('emea') });
    onTestFinished(() => upstream.close());
    const names = ['emea', 'apac'];
    const first = await startWorkspaces(names, {
      ADMIN_PORT: '0',
      CACHE_TTL: '1h',
      SHARED_STORE: redis.address,
      UPSTREAM_BASE_URL: upstream.url,
      UPSTREAM_BASE_URL_EMEA: '',
      UPSTREAM_BASE_URL_APAC: '',
      UPSTREAM_API_KEY_FROM_APAC: 'env:KEY_OF_EMEA',
      KEY_OF_EMEA: keyOf('emea'),
    });
    const one = first.gateway;
    const other = await first.another();
    for (const gateway of [one, other]) {
      await until(
        () => gateway.logLines().filter(({ msg }) => msg === 'the shared store is in use').length === 2,
      );
    }
    const cacheOf = async (gateway: TestGateway, name: string) =>
      String((await gateway.ask(accountsOf(name))).headers['cache-status']);

    expect(await cacheOf(one, 'emea')).toContain('fwd=uri-miss');
    await until(
      async () =>
        (await redis.command('KEYS', '*:answer:*')) !== '' &&
        (await redis.command('KEYS', '*:turn:*')) === '',
    );
    expect(await cacheOf(other, 'emea')).toContain('detail=shared-store');
    expect(await cacheOf(other, 'apac')).toContain('fwd=uri-miss');
    expect(upstream.requests).toHaveLength(2);

    // Another gateway's purge of one workspace is one of that workspace alone.
    const purged = await one.askAdmin('/cache/purge?workspace=emea', { method: 'POST' });
    expect(purged.json()).toMatchObject({ workspace: 'emea', entries: 1 });
    const entriesOf = async (name: string) => {
      const status = (await other.askAdmin(`/status?workspace=${name}`)).json() as {
        cache: { entries: number };
      };
      return status.cache.entries;
    };
    await until(async () => (await entriesOf('emea')) === 0);
    expect(await entriesOf('apac')).toBe(1);
    expect(await redis.command('KEYS', '*')).not.toContain('wa_standin');
  });

  it('a caller’s limit is one for all gateways while the first workspace has no key', async () => {
    await using redis = await startRedis();
    const caller = enrol('limited', { workspaces: ['apac'], limit: { perSecond: 0.001, burst: 10 } });
    const first = await startWorkspaces(['emea', 'apac'], {
      SHARED_STORE: redis.address,
      CALLERS_FILE: writeCallersFile([caller.entry]),
      UPSTREAM_API_KEY_FROM_EMEA: 'exec:false',
    });
    const gateways = [first.gateway, await first.another()];
    for (const gateway of gateways) {
      await until(
        () => gateway.logLines().filter(({ msg }) => msg === 'the shared store is in use').length === 2,
      );
    }
    const [one, other] = gateways as [TestGateway, TestGateway];
    const statusAt = async (gateway: TestGateway) =>
      (await gateway.ask(accountsOf('apac'), { headers: bearer(caller.token) })).status;
    for (let count = 0; count < 10; count++) expect(await statusAt(one)).toBe(200);
    await until(async () => (await redis.command('KEYS', '*:limit:*')) !== '');
    const statuses: number[] = [];
    for (let count = 0; count < 8 && !statuses.includes(429); count++) {
      statuses.push(await statusAt(other));
      await sleep(200);
    }
    expect(statuses).toContain(429);
  });
});

describe('what all workspaces have together', () => {
  it('attempts at once are bounded for all, and a workspace whose upstream stalls leaves every other its part', async () => {
    const { gateway, workspace } = await startWorkspaces(['busy', 'other', 'quiet'], {
      UPSTREAM_CONNECTIONS: '4',
    });
    const { promise: until, resolve: answer } = Promise.withResolvers<void>();
    workspace('busy').standIn.behave({ until });
    const stalled = Array.from({ length: 10 }, (_, page) => gateway.ask(accountsOf('busy', `?page=${page}`)));
    // One of four belongs to each, and what is left is common.
    await workspace('busy').standIn.received(3);
    workspace('other').standIn.behave({ until });
    const others = Array.from({ length: 10 }, (_, page) => gateway.ask(accountsOf('other', `?page=${page}`)));
    await workspace('other').standIn.received(1);
    for (let page = 0; page < 5; page++) {
      expect((await gateway.ask(accountsOf('quiet', `?page=${page}`))).status).toBe(200);
    }
    expect(['busy', 'other'].map((name) => workspace(name).standIn.requests.length)).toEqual([3, 1]);
    answer();
    expect(new Set((await Promise.all([...stalled, ...others])).map(({ status }) => status))).toEqual(
      new Set([200]),
    );
  });

  it('an answer of the largest size gets through in every one of many workspaces while another’s upstream stalls', async () => {
    const names = Array.from({ length: 8 }, (_, at) => `w${at}`);
    const patient = { UPSTREAM_TIMEOUT: '5m', REQUEST_TIMEOUT: '5m', RETRY_LIMIT: '0' };
    const { gateway, workspace } = await startWorkspaces(names, patient);
    const bodyOf = (bytes: number) => ({ body: JSON.stringify('x'.repeat(bytes)) });
    const busy = workspace('w0').standIn;
    busy.behave({ ...bodyOf(6_000_000), stallAt: 1_000 });
    const stalled = Array.from({ length: 12 }, (_, page) => gateway.ask(accountsOf('w0', `?page=${page}`)));
    await busy.received(6);
    workspace('w1').standIn.behave({ ...bodyOf(8_000_000), framing: 'chunked' });
    expect((await gateway.ask(accountsOf('w1'))).status).toBe(200);
    await busy.close();
    expect(new Set((await Promise.all(stalled)).map(({ status }) => status))).toEqual(new Set([502]));
  });

  it('connections are bounded for all, idle ones included: a workspace that needs more has the idle ones of another closed', async () => {
    const { gateway, workspaces } = await startWorkspaces(['first', 'second'], { UPSTREAM_CONNECTIONS: '4' });
    let page = 0;
    const burst = async (name: string, connections: number): Promise<void> => {
      const { standIn } = workspaces.find((one) => one.name === name) ?? {};
      const { promise: until, resolve: answer } = Promise.withResolvers<void>();
      standIn?.reset();
      standIn?.behave({ until });
      const asked = [1, 2, 3].map(() => gateway.ask(accountsOf(name, `?page=${++page}`)));
      await standIn?.received(3);
      answer();
      await Promise.all(asked);
      standIn?.behave(undefined);
      expect(standIn?.counts.connections, name).toBe(connections);
    };
    await burst('first', 3);
    // They are open still.
    await burst('first', 0);
    await burst('second', 3);
    // Six would have been open.
    await burst('first', 3);
  });

  it('bytes of the cache are bounded for all, and a busy workspace does not push a quiet one out', async () => {
    const { gateway, workspaces } = await startWorkspaces(
      ['busy', 'quiet'],
      { ADMIN_PORT: '0', CACHE_TTL: '1h', CACHE_MAX_BYTES: '64KiB' },
      { accounts: 10 },
    );
    for (const page of [1, 2]) await gateway.ask(accountsOf('quiet', `?page=${page}`));
    for (let page = 0; page < 60; page++) await gateway.ask(accountsOf('busy', `?page=${page}`));
    const { standIn } = workspaces[1] ?? {};
    for (const page of [1, 2]) {
      const { headers } = await gateway.ask(accountsOf('quiet', `?page=${page}`));
      expect(headers['cache-status']).toContain('hit');
    }
    expect(standIn?.requests).toHaveLength(2);
    const metrics = (await gateway.askAdmin('/metrics')).body.toString();
    const { value } = parseExposition(metrics);
    const bytesOf = (name: string): number =>
      value('analytics_gateway_cache_bytes', { workspace: name }) ?? 0;
    expect(bytesOf('busy') + bytesOf('quiet')).toBeLessThanOrEqual(65_536);
    // It may take what the other does not use.
    expect(bytesOf('busy')).toBeGreaterThan(32_768);
    expect(value('analytics_gateway_cache_max_bytes')).toBe(65_536);
    expect(value('analytics_gateway_cache_evictions_total', { workspace: 'quiet' })).toBe(0);
  });
});

describe('what is shown of several workspaces', () => {
  it('the status has each of them, one alone where it is asked for, and a verdict that names the workspace', async () => {
    const { gateway, workspace } = await startWorkspaces(['', 'emea'], { ADMIN_PORT: '0' });
    await gateway.ask(accountsOf('emea'));
    workspace('emea').standIn.keys.clear();
    await gateway.ask(accountsOf('emea', '?page=2'));
    const statusOf = async (query = '') => (await gateway.askAdmin(`/status${query}`)).json();
    expect(await statusOf()).toMatchObject({
      health: 'degraded',
      reasons: [{ code: 'key-refused', workspace: 'emea', detail: expect.stringMatching(/^emea: /) }],
      workspace: null,
      key: null,
      gate: null,
      workspaces: [
        { workspace: null, key: { rejected: false }, cache: { entries: 0 } },
        { workspace: 'emea', key: { rejected: true }, cache: { entries: 1 } },
      ],
      requests: {
        counts: [
          { workspace: 'emea', status: 200 },
          { workspace: 'emea', status: 502 },
        ],
      },
    });
    // As if it were alone.
    expect(await statusOf('?workspace=emea')).toMatchObject({
      health: 'failing',
      workspace: 'emea',
      key: { rejected: true },
      workspaces: [],
    });
    expect(await statusOf('?workspace=')).toMatchObject({
      health: 'ok',
      key: { rejected: false },
      requests: { counts: [] },
    });
    expect((await gateway.askAdmin('/status?workspace=apac')).status).toBe(404);
    expect((await gateway.askAdmin('/status?other=emea')).status).toBe(400);
  });

  it('metrics have the label of the workspace, which the unnamed one has not', async () => {
    const { gateway } = await startWorkspaces(['', 'emea'], { ADMIN_PORT: '0' });
    for (const name of ['', 'emea', 'emea']) await gateway.ask(accountsOf(name));
    const { value } = parseExposition((await gateway.askAdmin('/metrics')).body.toString());
    const labels = { operation: 'list-accounts', status: '200' };
    expect(value('analytics_gateway_requests_total', { ...labels, cache: 'miss' })).toBe(1);
    expect(value('analytics_gateway_requests_total', { ...labels, cache: 'hit', workspace: 'emea' })).toBe(1);
    expect(value('analytics_gateway_key_loaded')).toBe(1);
    expect(value('analytics_gateway_key_loaded', { workspace: 'emea' })).toBe(1);
  });

  it('a purge without a name is one of all workspaces', async () => {
    const { gateway } = await startWorkspaces(['', 'emea'], { ADMIN_PORT: '0' });
    for (const name of ['', 'emea']) await gateway.ask(accountsOf(name));
    const purge = async (query: string) =>
      (await gateway.askAdmin(`/cache/purge${query}`, { method: 'POST' })).json();
    expect(await purge('?workspace=')).toMatchObject({ entries: 1 });
    expect(await purge('')).toMatchObject({ entries: 1 });
    expect(await purge('?workspace=apac')).toMatchObject({ code: 'unknown-operation' });
  });
});
