import { describe, expect, it } from 'vitest';
import { problems } from '../../src/errors.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { startPair } from '../support/gateway.ts';

describe('a problem says what it is (RFC 9457)', () => {
  it('a problem has everything that a caller and its helper need (RFC 9457)', async () => {
    const { ask } = await startPair();
    const came = await ask('/api/nope', { headers: { 'x-request-id': 'r-1' } });
    expect(came.headers['content-type']).toBe('application/problem+json');
    expect(came.headers['cache-control']).toBe('no-store');
    const { title, status } = problems['unknown-operation'];
    expect(came.json()).toEqual({
      type: '/problems/unknown-operation',
      title,
      status,
      detail: expect.stringMatching(/^There is no operation at this path\./),
      code: 'unknown-operation',
      requestId: 'r-1',
    });
  });

  it('HEAD gets a problem’s fields and no body', async () => {
    const { ask } = await startPair();
    const get = await ask('/api/nope');
    const head = await ask('/api/nope', { method: 'HEAD' });
    expect(head.status).toBe(404);
    expect(head.body).toHaveLength(0);
    expect(Number(head.headers['content-length'])).toBe(get.body.length);
  });
});

describe('a refusal says what to ask for', () => {
  const specified = 'GET /api/analytics/accounts/, GET /api/users/api-keys/';

  it('a 404 lists the operations that exist, below /api and elsewhere', async () => {
    const { ask } = await startPair({ UPSTREAM_READS: '/analytics/reports/:id/' });
    for (const path of ['/api/analytics/account/', '/api', '/analytics/accounts/', '/nothing']) {
      const { detail } = (await ask(path)).json();
      expect(detail, path).toContain(`These exist: ${specified}, GET /api/analytics/reports/:id/. `);
    }
  });

  it('the line of a 404 in the log has no list', async () => {
    const { ask, logLines } = await startPair();
    await ask('/api/analytics/account/');
    await ask('/nothing');
    const lines = logLines().filter(({ msg }) => msg === 'request');
    expect(lines.map(({ reason }) => reason)).toEqual(Array(2).fill('no operation at this path'));
  });

  it('a 404 lists twenty operations at most, and says where the others are', async () => {
    const names = Array.from({ length: 30 }, (_, at) => `/analytics/table-${at}/`);
    const { ask } = await startPair({ UPSTREAM_READS: names.join() });
    const detail = String((await ask('/api/nope')).json()['detail']);
    expect(detail.match(/GET /g)).toHaveLength(20);
    expect(detail).toContain(' and 12 more, which /openapi.json lists. ');
  });

  it('a 403 names the operation to ask for', async () => {
    const { token, entry } = enrol('reports');
    const { ask } = await startWith([entry]);
    const came = await ask('/api/users/api-keys/', { headers: bearer(token) });
    expect(came.json()).toMatchObject({ status: 403, code: 'caller-forbidden' });
    expect(came.json()['detail']).toContain('The operation list-api-keys is not among those granted to you.');
  });
});

describe('each problem has a page of its own', () => {
  it('each problem has a page for people, without authentication', async () => {
    const { ask } = await startPair();
    for (const [code, { title, help }] of Object.entries(problems)) {
      const came = await ask(`/problems/${code}`);
      expect(came.status).toBe(200);
      expect(came.headers['content-type']).toBe('text/plain; charset=utf-8');
      expect(came.body.toString()).toContain(title);
      expect(came.body.toString()).toContain(help);
    }
  });

  it('there are no pages but those of problems', async () => {
    const { ask } = await startPair();
    for (const path of ['/problems/nope', '/problems/__proto__', '/problems/constructor']) {
      expect((await ask(path)).json()).toMatchObject({ code: 'unknown-operation' });
    }
  });
});
