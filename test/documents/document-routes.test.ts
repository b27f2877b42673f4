import { hash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { problems } from '../../src/errors.ts';
import { bearer, enrol, startWith, writeCallersFile } from '../support/callers-files.ts';
import { accounts, type Came, startPair, type TestGateway } from '../support/gateway.ts';
import { startWorkspaces } from '../support/workspaces.ts';

/** As Chromium sends it when it goes to a page. */
const browserAccept = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8';
const asBrowser = { headers: { accept: browserAccept } };

const paths = ['/', '/openapi.json', '/docs', '/problems'];

/** Paths and names of the operations that an API document has. */
function operationsIn(came: Came): string[] {
  const described = came.json()['paths'] as Record<string, { get: { operationId: string } }>;
  return Object.entries(described).map(([path, { get }]) => `${path} ${get.operationId}`);
}

const me = '/me me';
const both = ['/analytics/accounts/ list-accounts', '/users/api-keys/ list-api-keys'];

describe('the documents for those who write callers', () => {
  it('the start page says what the gateway is and where to read on, to programs in JSON', async () => {
    const { ask } = await startPair();
    for (const headers of [{}, { accept: '*/*' }, { accept: 'application/json' }]) {
      const came = await ask('/', { headers });
      expect([came.status, came.headers['content-type']]).toEqual([200, 'application/json']);
      const { name, base, docs, openapi, problems, ready } = came.json();
      expect([name, base]).toEqual(['Workspace Analytics Gateway', '/api']);
      for (const path of [docs, openapi, problems, ready]) expect((await ask(String(path))).status).toBe(200);
    }
  });

  it('the start page is HTML for browsers, with links to the same', async () => {
    const { ask } = await startPair();
    const came = await ask('/', asBrowser);
    expect(came.headers['content-type']).toBe('text/html; charset=utf-8');
    const links = [...came.body.toString().matchAll(/<a href="([^"]*)"/g)].map(([, link]) => link);
    expect(links).toEqual(['docs', 'openapi.json', 'problems', 'readyz']);
  });

  it('the list of problems has every problem, in JSON and as a page', async () => {
    const { ask } = await startPair();
    const list = JSON.parse((await ask('/problems')).body.toString()) as object[];
    expect(list).toEqual(
      Object.entries(problems).map(([code, facts]) => ({ type: `/problems/${code}`, code, ...facts })),
    );
    const page = (await ask('/problems', asBrowser)).body.toString();
    for (const code of Object.keys(problems)) expect(page).toContain(`<tr id="${code}">`);
  });

  it('a problem is explained in JSON to a program that asks for it, and as a text to others', async () => {
    const { ask } = await startPair();
    const list = (await ask('/problems')).json() as unknown as { code: string }[];
    for (const problem of list) {
      const came = await ask(`/problems/${problem.code}`, { headers: { accept: 'application/json' } });
      expect(came.headers['content-type']).toBe('application/json');
      expect(came.json()).toEqual(problem);
    }
    for (const accept of ['*/*', 'text/plain', 'text/html,application/json;q=0.9']) {
      const came = await ask('/problems/overloaded', { headers: { accept } });
      expect(came.headers['content-type']).toBe('text/plain; charset=utf-8');
    }
    const unknown = await ask('/problems/none', { headers: { accept: 'application/json' } });
    expect([unknown.status, unknown.json()['code']]).toEqual([404, 'unknown-operation']);
  });

  it.each(['/docs', '/problems'])('%s with a slash at its end leads to the one without', async (path) => {
    const { ask } = await startPair();
    const moved = await ask(`${path}/?x=1`);
    expect([moved.status, moved.headers.location]).toEqual([308, `..${path}`]);
    expect((await ask(`${path}/`, { method: 'POST' })).status).toBe(405);
  });

  it.each(paths)('%s answers HEAD like GET without a body, and refuses other methods', async (path) => {
    const { ask } = await startPair();
    const get = await ask(path);
    const head = await ask(path, { method: 'HEAD' });
    expect([head.status, head.body.length]).toEqual([200, 0]);
    expect(head.headers['content-length']).toBe(String(get.body.length));
    const post = await ask(path, { method: 'POST' });
    expect([post.status, post.headers.allow]).toEqual([405, 'GET, HEAD']);
  });

  it.each(paths)('%s stands behind the check of the host, and in the log', async (path) => {
    const { ask, logLines } = await startPair();
    expect((await ask(path, { headers: { host: 'evil.example' } })).json()['code']).toBe('host-not-allowed');
    await ask(path);
    const [, line] = logLines().filter(({ msg }) => msg === 'request');
    expect(line).toMatchObject({ status: 200, method: 'GET', operation: expect.any(String) });
  });

  it.each(paths)('%s needs no upstream and is kept by no cache', async (path) => {
    const { ask, standIn } = await startPair();
    expect((await ask(path)).headers['cache-control']).toBe('no-store');
    expect(standIn.counts.total).toBe(0);
  });
});

describe('the API document of a gateway', () => {
  it('the API document has the operations of the specification and those of UPSTREAM_READS', async () => {
    const { ask } = await startPair({ UPSTREAM_READS: '/analytics/reports/:id/' });
    const came = await ask('/openapi.json');
    expect(came.headers['content-type']).toBe('application/json');
    expect(operationsIn(came)).toEqual([...both, '/analytics/reports/{id}/ /analytics/reports/:id/', me]);
    expect(came.json()['security']).toContainEqual({});
  });

  it('the API document lists all operations without a token, and with one what its caller may do', async () => {
    const { token, entry } = enrol('reports-of-finance');
    const { token: idle, entry: idleEntry } = enrol('idle', { operations: [] });
    const { ask } = await startWith([entry, idleEntry]);
    expect(operationsIn(await ask('/openapi.json'))).toEqual([...both, me]);
    expect(operationsIn(await ask('/openapi.json', { headers: bearer(token) }))).toEqual([both[0], me]);
    expect(operationsIn(await ask('/openapi.json', { headers: { 'x-api-key': token } }))).toEqual([
      both[0],
      me,
    ]);
    expect(operationsIn(await ask('/openapi.json', { headers: bearer(idle) }))).toEqual([me]);
    expect((await ask('/docs', { headers: bearer(idle) })).body.toString()).toContain('No operation');
  });

  it('the documents name no caller, whether its token is sent or not', async () => {
    const { token, entry } = enrol('reports-of-finance');
    const { ask } = await startWith([entry]);
    for (const path of paths) {
      for (const headers of [{}, bearer(token)]) {
        const came = await ask(path, { headers });
        expect(came.status).toBe(200);
        expect(came.body.toString() + JSON.stringify(came.headers)).not.toContain('finance');
      }
    }
  });

  it('a wrong token gets 401 from what depends on it, and the other documents explain the problem', async () => {
    const { entry } = enrol('reports');
    const { ask } = await startWith([entry]);
    const headers = bearer('wag_not-a-token-of-this-gateway-at-all');
    for (const path of ['/openapi.json', '/docs']) expect((await ask(path, { headers })).status).toBe(401);
    for (const path of ['/', '/problems', '/problems/caller-unauthenticated']) {
      expect((await ask(path, { headers })).status).toBe(200);
    }
  });

  it('a document counts for no limit of its reader', async () => {
    const { token, entry } = enrol('reports', { limit: { perSecond: 0.01, burst: 1 } });
    const { ask } = await startWith([entry]);
    const headers = bearer(token);
    for (const path of ['/openapi.json', '/docs']) expect((await ask(path, { headers })).status).toBe(200);
    expect((await ask(accounts, { headers })).status).toBe(200);
  });
});

interface ShapeOfMe {
  readonly required: readonly string[];
  readonly properties: Readonly<Record<string, Partial<ShapeOfMe> & { readonly items?: ShapeOfMe }>>;
}

describe('what a caller may ask about itself', () => {
  const expires = '2027-01-01T00:00:00Z';
  const reports = enrol('reports', { limits: ['2/1h', '5000/1d'] });
  const [token] = (reports.entry as { tokens: [object] }).tokens;
  const ending = { ...reports.entry, tokens: [{ ...token, expires }] };
  const headers = bearer(reports.token);

  it('a caller is told its name, grants, limits and requests, without the upstream, and nothing may keep it', async () => {
    const { ask, standIn, logLines } = await startWith([ending]);
    for (let read = 0; read < 2; read++) await ask(accounts, { headers });
    expect((await ask('/api/users/api-keys/', { headers })).status).toBe(429);
    const came = await ask('/me', { headers });
    expect([came.status, came.headers['cache-control'], came.headers['content-type']]).toEqual([
      200,
      'no-store',
      'application/json',
    ]);
    const { limits, ...rest } = came.json();
    expect(rest).toEqual({
      caller: 'reports',
      by: 'token',
      subject: null,
      expires: '2027-01-01T00:00:00.000Z',
      workspaces: [{ name: null, base: '/api', operations: ['list-accounts'] }],
      today: { requests: 3, fromMemory: 1, sentUp: 1, refused: 1 },
    });
    expect(limits).toEqual([
      { limit: '2/1h', remaining: 0, resetSeconds: expect.any(Number) },
      { limit: '5000/1d', remaining: 4_998, resetSeconds: expect.any(Number) },
    ]);
    expect(standIn.requests).toHaveLength(1);
    expect(logLines().at(-1)).toMatchObject({ caller: 'reports', operation: 'me', status: 200 });
  });

  it('what a caller is told has the shape of the API document', async () => {
    const { ask } = await startWith([ending]);
    const { components } = (await ask('/openapi.json')).json() as {
      components: { schemas: { Me: ShapeOfMe } };
    };
    const { Me } = components.schemas;
    const came = (await ask('/me', { headers })).json();
    expect(Object.keys(came)).toEqual(Me.required);
    for (const list of ['workspaces', 'limits']) {
      const [first] = came[list] as object[];
      expect(Object.keys(first ?? {})).toEqual(Me.properties[list]?.items?.required);
    }
    expect(Object.keys(came['today'] as object)).toEqual(Me.properties['today']?.required);
  });

  it('a caller is told of its workspaces by their own base addresses, below the public one', async () => {
    const entry = { ...reports.entry, workspaces: ['acme', 'other'] };
    const CALLERS_FILE = writeCallersFile([entry]);
    const PUBLIC_BASE_URL = 'https://gateway.internal';
    const { gateway } = await startWorkspaces(['acme', 'other', 'third'], { CALLERS_FILE, PUBLIC_BASE_URL });
    expect((await gateway.ask('/me', { headers })).json()['workspaces']).toEqual([
      { name: 'acme', base: `${PUBLIC_BASE_URL}/w/acme/api`, operations: ['list-accounts'] },
      { name: 'other', base: `${PUBLIC_BASE_URL}/w/other/api`, operations: ['list-accounts'] },
    ]);
  });

  it('a caller is told by HEAD and to pages of listed origins; other methods, wrong tokens and strangers are refused', async () => {
    const page = 'https://page.example';
    const { ask } = await startWith([ending], { CORS_ORIGINS: page });
    const head = await ask('/me', { headers: { ...headers, origin: page }, method: 'HEAD' });
    expect([head.status, head.body.length, head.headers['access-control-allow-origin']]).toEqual([
      200,
      0,
      page,
    ]);
    const asked = { origin: page, 'access-control-request-method': 'GET' };
    expect((await ask('/me', { headers: asked, method: 'OPTIONS' })).status).toBe(204);
    expect((await ask('/me', { headers, method: 'POST' })).json()).toMatchObject({
      code: 'method-not-allowed',
    });
    expect((await ask('/me')).json()).toMatchObject({ code: 'caller-unauthenticated' });
    expect((await ask('/me', { headers: bearer('wag_wrong') })).status).toBe(401);
  });

  it('an anonymous caller is told what it may do, and pages of other sites are not', async () => {
    const { ask } = await startPair();
    expect((await ask('/me')).json()).toMatchObject({
      caller: 'anonymous',
      by: 'anonymous',
      expires: null,
      workspaces: [{ name: null, base: '/api', operations: ['list-accounts', 'list-api-keys'] }],
      limits: [],
    });
    const link = {
      'sec-fetch-site': 'cross-site',
      'sec-fetch-mode': 'navigate',
      'sec-fetch-dest': 'document',
    };
    expect((await ask('/me', { headers: link })).status).toBe(403);
  });
});

describe('the pages', () => {
  async function page(path: string): Promise<Came> {
    const { ask } = await startPair({ UPSTREAM_READS: '/analytics/reports/:id/' });
    return ask(path, asBrowser);
  }

  it.each(['/', '/docs', '/problems'])(
    'the page %s loads nothing, and runs what it has alone',
    async (path) => {
      const { headers, body } = await page(path);
      const text = body.toString();
      const policy = String(headers['content-security-policy']);
      expect(policy).toMatch(/^default-src 'none'; /);
      expect(policy).not.toMatch(/unsafe|https?:|\*/);
      const digests = [...text.matchAll(/<(script|style)>([\s\S]*?)<\/\1>/g)].map(
        ([, kind, inner = '']) => `${kind}-src 'sha256-${hash('sha256', inner, 'base64')}'`,
      );
      expect(digests).toHaveLength(path === '/docs' ? 2 : 1);
      for (const digest of digests) expect(policy).toContain(digest);
      // Attributes that run or style would be refused by the browser.
      expect(text).not.toMatch(/ (?:style|on\w+)=/);
      const loaded = [...text.matchAll(/ (?:src|href)="([^"]*)"/g)].map(([, link = '']) => link);
      for (const link of loaded) expect(link).toMatch(/^(?:#[\w-]+|[a-z]+(?:\.json)?|data:,)$/);
    },
  );

  it('the pages escape what texts have', async () => {
    for (const path of ['/docs', '/problems']) {
      const text = (await page(path)).body.toString();
      expect(text).toContain('Bearer &lt;token&gt;');
      expect(text).not.toContain('<token>');
    }
  });

  it('the API page has each operation, and each problem under its code', async () => {
    const text = (await page('/docs')).body.toString();
    for (const path of ['/analytics/accounts/', '/users/api-keys/', '/analytics/reports/:id/']) {
      expect(text).toContain(`<code>/api${path}</code>`);
    }
    const links = [...text.matchAll(/href="#([\w-]+)"/g)].map(([, id]) => id);
    expect(links).toContain('caller-forbidden');
    for (const id of links) expect(text).toContain(`id="${id}"`);
  });
});

describe('the API page and links', () => {
  it('the API page warns while links lead past the gateway, and has the public address where one is set', async () => {
    const past = await startPair();
    past.standIn.behave(() => ({ body: JSON.stringify([`${past.standIn.url}/x`]) }));
    const warning = 'Do not follow links in answers';
    expect((await past.ask('/docs')).body.toString()).not.toContain(warning);
    await past.ask(accounts);
    expect((await past.ask('/docs')).body.toString()).toContain(warning);
    const led = await startPair({ PUBLIC_BASE_URL: 'https://gateway.internal/analytics' });
    led.standIn.behave(() => ({ body: JSON.stringify([`${led.standIn.url}/x`]) }));
    await led.ask(accounts);
    const page = (await led.ask('/docs')).body.toString();
    expect(page).not.toContain(warning);
    expect(page).toContain('<code>https://gateway.internal/analytics/api</code>');
    expect(page).not.toContain('data-origin');
  });
});

describe('a link to the documents, where an anonymous caller exists', () => {
  const link = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
  const codeOf = async (gateway: TestGateway, path: string, headers: Record<string, string>) => {
    const came = await gateway.ask(path, { headers });
    return came.status === 200 ? 200 : came.json()['code'];
  };

  it('a link on a page of another site leads to the documents, and to no operation', async () => {
    const gateway = await startPair();
    for (const path of paths) expect(await codeOf(gateway, path, link)).toBe(200);
    expect(await codeOf(gateway, accounts, link)).toBe('origin-not-allowed');
  });

  it('a page of another site can neither load nor embed the documents', async () => {
    const gateway = await startPair();
    for (const path of paths) {
      for (const [mode, dest] of [
        ['cors', 'empty'],
        ['no-cors', 'script'],
        ['navigate', 'iframe'],
      ] as const) {
        const headers = { ...link, 'sec-fetch-mode': mode, 'sec-fetch-dest': dest };
        expect(await codeOf(gateway, path, headers), `${path} ${dest}`).toBe('origin-not-allowed');
      }
    }
  });
});
