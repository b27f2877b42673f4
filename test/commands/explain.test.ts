import { describe, expect, it, vi } from 'vitest';
import { readCallersVersion } from '../../src/callers/caller-store.ts';
import { callersFileRules } from '../../src/callers/callers-file.ts';
import { explainRequest } from '../../src/commands/explain.ts';
import { readConfig } from '../../src/config/config.ts';
import { operationsOf } from '../../src/operations.ts';
import { bearer, enrol, startWith, writeCallersFile } from '../support/callers-files.ts';
import { commandLine } from '../support/command-line.ts';
import { startPair } from '../support/gateway.ts';

const page = 'https://page.example';
const settings = { CORS_ORIGINS: page, UPSTREAM_READS: '/analytics/reports/:id/' };
const accounts = '/api/analytics/accounts/';

/** What `explain` says of a request at a gateway with these callers and settings. */
function explainWith(callers: readonly object[] | undefined, more: Record<string, string> = {}) {
  const config = readConfig({
    UPSTREAM_BASE_URL: 'https://analytics.example.com/api',
    ...settings,
    ...(callers && { CALLERS_FILE: writeCallersFile(callers) }),
    ...more,
  });
  const names = config.workspaces.map(({ name }) => name);
  const rules = callersFileRules(config, operationsOf(config), names);
  const version = readCallersVersion({ ...rules, file: config.CALLERS_FILE });
  return (
    caller: string,
    method: string,
    path: string,
    flags: { origin?: string; workspace?: string } = {},
  ) => explainRequest(config, version, { caller, method, path, ...flags });
}

describe('explain', () => {
  const script = enrol('script', { limits: ['100/1d'], weight: 2 });
  const tried = enrol('tried', { enforce: false });

  it.each<[string, string, string, Record<string, string>]>([
    ['script', 'GET', accounts, {}],
    ['script', 'HEAD', `${accounts}?page=2`, {}],
    ['script', 'GET', '/api/analytics/accounts', { origin: page }],
    ['script', 'GET', '/api/users/api-keys/', {}],
    ['script', 'GET', '/api/analytics/reports/7/', {}],
    ['script', 'GET', '/api/analytics/reports/%37/', {}],
    ['script', 'POST', accounts, {}],
    ['script', 'GET', `${accounts}?api_key=x`, {}],
    ['script', 'GET', '/api/nothing', {}],
    ['tried', 'GET', '/api/users/api-keys/', {}],
  ])('explain says of %s %s %s what the gateway does', async (caller, method, path, headers) => {
    const { token } = caller === 'script' ? script : tried;
    const { ask } = await startWith([script.entry, tried.entry], settings);
    const came = await ask(path, { method, headers: { ...bearer(token), ...headers } });
    const explained = explainWith([script.entry, tried.entry])(caller, method, path, headers);
    expect(explained.passes).toBe(came.status === 200 || (came.status === 404 && path.includes('/7/')));
    if (explained.problem === null) return;
    const { code, status, detail } = came.json();
    expect(explained.problem).toEqual({ code, status, detail });
  });

  it('explain says what would go up, with the key nowhere', () => {
    const explained = explainWith([script.entry])('script', 'get', `${accounts}?page=2`);
    expect(explained).toMatchObject({
      passes: true,
      operation: 'list-accounts',
      limits: ['100/1d'],
      weight: 2,
      problem: null,
      upstream: {
        method: 'GET',
        url: 'https://analytics.example.com/api/analytics/accounts/?page=2',
        fields: { accept: 'application/json', 'x-api-key': '(the key)', 'x-request-id': '(an id)' },
      },
    });
  });

  it('explain says which layer refuses, and the command or setting that would let the request pass', () => {
    const ask = explainWith([
      script.entry,
      { ...tried.entry, tokens: [{ ...tokenIn(tried.entry), expires: '2020-01-01T00:00:00Z' }] },
    ]);
    expect(ask('script', 'GET', '/api/users/api-keys/')).toMatchObject({
      decidedBy: 'selectOperation',
      reason: 'not granted: list-api-keys',
      todo: 'analytics-gateway token grant script list-api-keys',
      upstream: null,
    });
    expect(ask('script', 'GET', accounts, { origin: 'https://other.example' })).toMatchObject({
      decidedBy: 'guardOrigin',
      problem: { code: 'origin-not-allowed' },
      todo: expect.stringContaining('CORS_ORIGINS'),
    });
    expect(ask('tried', 'GET', accounts)).toMatchObject({
      decidedBy: 'authenticate',
      reason: 'all its tokens have ended',
      problem: { status: 401 },
    });
  });

  it('explain says what a rule would refuse that is not enforced', () => {
    const ask = explainWith([tried.entry]);
    expect(ask('tried', 'GET', '/api/users/api-keys/')).toMatchObject({
      passes: true,
      would: 'caller-forbidden',
      todo: 'analytics-gateway token grant tried list-api-keys',
    });
    expect(ask('tried', 'GET', accounts)).toMatchObject({ would: null, todo: null });
  });

  it('explain asks in the workspace that is named', () => {
    const workspaces = {
      WORKSPACES: 'acme,other',
      UPSTREAM_API_KEY_FROM_ACME: 'env:A',
      UPSTREAM_API_KEY_FROM_OTHER: 'env:B',
      UPSTREAM_BASE_URL_ACME: 'https://acme.example.com/api',
    };
    const ask = explainWith([{ ...script.entry, workspaces: ['acme'] }], workspaces);
    expect(ask('script', 'GET', accounts, { workspace: 'acme' })).toMatchObject({
      path: `/w/acme${accounts}`,
      workspace: 'acme',
      upstream: { url: 'https://acme.example.com/api/analytics/accounts/' },
    });
    expect(ask('script', 'GET', accounts, { workspace: 'other' })).toMatchObject({
      passes: false,
      todo: 'analytics-gateway token set script --workspace other, with those that it has already',
    });
    expect(() => ask('script', 'GET', accounts, { workspace: 'acne' })).toThrow(/did you mean "acme"/);
    expect(() => ask('script', 'GET', `/w/acme${accounts}`, { workspace: 'acme' })).toThrow(/already/);
  });

  it('explain knows the anonymous caller, whom pages of other sites may not use', async () => {
    const ask = explainWith(undefined);
    const { ask: askGateway } = await startPair(settings);
    for (const origin of [page, 'https://other.example']) {
      const { status } = await askGateway(accounts, { headers: { origin } });
      expect(ask('anonymous', 'GET', accounts, { origin }).passes).toBe(status === 200);
    }
  });

  it.each([
    [
      'a caller that the file has not',
      'scrip',
      accounts,
      /there is no caller "scrip" \(did you mean "script"\?\)/,
    ],
    [
      'a workspace where none has a name',
      'script',
      `/w/acme${accounts}`,
      /no workspace of this gateway has a name/,
    ],
    ['a path below no base address', 'script', '/analytics/accounts/', /the path begins with \/api\//],
  ])('explain of %s is wrong usage', (_, caller, path, message) => {
    expect(() => explainWith([script.entry])(caller, 'GET', path)).toThrow(message);
  });
});

describe('the command explain', () => {
  it('explain reads the callers file that --file names, and says so where none is set', async () => {
    vi.stubEnv('UPSTREAM_BASE_URL', 'https://analytics.example.com/api');
    vi.stubEnv('CALLERS_FILE', '');
    const file = writeCallersFile([enrol('script').entry]);
    const words = ['explain', 'script', 'GET', accounts];
    const { status, stdout, stderr } = await commandLine([...words, '--file', file]);
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout).toContain('of script would pass.');
    const refused = await commandLine(['explain', 'script', 'GET', '/api/users/api-keys/', '--file', file]);
    expect(refused.stdout).toContain('the grants of the callers file: not granted: list-api-keys\n');
    expect(refused.stdout).toContain(`token grant script --file ${file} list-api-keys\n`);
    expect(await commandLine(words)).toEqual({
      status: 2,
      stdout: '',
      stderr:
        'there is no caller "script", because CALLERS_FILE is not set: name the callers file with --file\n',
    });
  });
});

function tokenIn(entry: object): object {
  return (entry as { tokens: [object] }).tokens[0];
}
