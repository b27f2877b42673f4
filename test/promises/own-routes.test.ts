import type { Hono } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { poweredBy } from 'hono/powered-by';
import { describe, expect, it, vi } from 'vitest';
import type { Bindings } from '../../src/edge/adapter.ts';
import { GatewayError } from '../../src/errors.ts';
import type { RouteChecks } from '../../src/routes.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { startPair, type TestGateway } from '../support/gateway.ts';

const later = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** The routes of a team: what a changed `src/routes.ts` would register. */
function addRoutes(app: Hono<Bindings>, { checked, forCallers }: RouteChecks): void {
  app.get('/own/plain', (context) => context.text(`plain ${context.req.query('q') ?? ''}`));
  app.get('/own/plain-later', async (context) => {
    await later();
    return context.json({ host: context.req.header('host') });
  });
  app.get('/own/plain-throws', () => {
    throw new Error('the plain route is broken');
  });
  app.get('/own/checked', checked, (context) => context.text('checked'));
  app.get('/own/checked-later', checked, async (context) => {
    await later();
    return context.text('checked later', 202, { 'set-cookie': 'a=1', 'x-own': 'yes' });
  });
  app.get('/own/length', checked, () => new Response('four', { headers: { 'content-length': '4' } }));
  app.get('/own/nothing', checked, () => new Response(null, { status: 204 }));
  app.get('/own/throws', checked, async () => {
    await later();
    throw new Error('the route is broken');
  });
  app.get('/own/refuses', checked, () => {
    throw new HTTPException(418, { message: 'a teapot' });
  });
  app.get('/own/forbids', checked, () => {
    throw new GatewayError('caller-forbidden');
  });
  app.get('/own/twice', checked, forCallers, (context) => context.text('never'));
  app.get('/own/caller', forCallers, async (context) => {
    await later();
    return context.text(`hello ${context.get('caller')}`);
  });
  app.use('/own/team/*', checked, poweredBy());
  app.get('/own/team/hello', async (context) => {
    await later();
    return context.text('hello team');
  });
}

vi.mock('../../src/routes.ts', () => ({ addRoutes }));

function lines(gateway: TestGateway): Record<string, unknown>[] {
  return gateway.logLines().filter(({ msg }) => msg === 'request');
}

describe("a team's own route without a check", () => {
  it("a plain route of a team's own answers, with the query and the fields of its request", async () => {
    const gateway = await startPair();
    const plain = await gateway.ask('/own/plain?q=a%20b');
    expect([plain.status, plain.body.toString()]).toEqual([200, 'plain a b']);
    const late = await gateway.ask('/own/plain-later');
    expect(late.json()).toEqual({ host: `127.0.0.1:${gateway.port}` });
    expect(lines(gateway)).toEqual([]);
  });

  it('a plain route answers HEAD with the fields of GET and no body', async () => {
    const { ask } = await startPair();
    for (const path of ['/own/plain', '/own/plain-later']) {
      const get = await ask(path);
      const head = await ask(path, { method: 'HEAD' });
      expect([head.status, head.headers['content-type']]).toEqual([200, get.headers['content-type']]);
      expect(head.body).toHaveLength(0);
    }
  });

  it('a plain route that throws answers 500 without its message, which is logged', async () => {
    const gateway = await startPair();
    const { status, body } = await gateway.ask('/own/plain-throws');
    expect([status, body.length]).toEqual([500, 0]);
    expect(gateway.logText()).toContain('the plain route is broken');
    expect((await gateway.ask('/own/plain')).status).toBe(200);
  });
});

describe("a team's own route behind `checked`", () => {
  it.each([
    ['/own/checked', 200, 'checked'],
    ['/own/checked-later', 202, 'checked later'],
    ['/own/team/hello', 200, 'hello team'],
  ])('%s answers with a request id and has one line in the log', async (path, status, text) => {
    const gateway = await startPair();
    const reply = await gateway.ask(path, { headers: { 'x-request-id': 'id-of-the-caller' } });
    expect([reply.status, reply.body.toString()]).toEqual([status, text]);
    expect(reply.headers['x-request-id']).toBe('id-of-the-caller');
    expect(reply.headers['content-length']).toBe(String(text.length));
    expect(reply.headers['x-hono-already-sent']).toBeUndefined();
    expect(lines(gateway)).toMatchObject([{ requestId: 'id-of-the-caller', status, method: 'GET' }]);
  });

  it("a checked route's own fields reach the caller, each once", async () => {
    const { ask } = await startPair();
    const late = await ask('/own/checked-later');
    expect([late.headers['x-own'], late.headers['set-cookie']]).toEqual(['yes', ['a=1']]);
    const { rawHeaders, body } = await ask('/own/length');
    expect(rawHeaders.filter((name) => name.toLowerCase() === 'content-length')).toHaveLength(1);
    expect(body.toString()).toBe('four');
  });

  it('a checked route that answers 204 sends no length (RFC 9110 section 8.6)', async () => {
    const { ask } = await startPair();
    const { status, headers } = await ask('/own/nothing');
    expect([status, headers['content-length']]).toEqual([204, undefined]);
  });

  it('a checked route answers HEAD with the fields of GET and no body', async () => {
    const gateway = await startPair();
    for (const path of ['/own/checked', '/own/checked-later']) {
      const { headers, body } = await gateway.ask(path, { method: 'HEAD' });
      expect(headers['content-length']).toBe(String(path.slice(5).length));
      expect(body).toHaveLength(0);
    }
    expect(lines(gateway)).toMatchObject([{ method: 'HEAD' }, { method: 'HEAD' }]);
  });

  it('a checked route that throws answers with a problem and its id; the log has the error', async () => {
    const gateway = await startPair();
    const reply = await gateway.ask('/own/throws');
    expect(reply.status).toBe(500);
    const { code, requestId } = reply.json();
    expect(code).toBe('internal-error');
    expect(reply.body.toString()).not.toContain('broken');
    expect(lines(gateway)).toMatchObject([{ requestId, status: 500, reason: 'the route is broken' }]);
    expect(gateway.logText()).toContain('the route is broken');
  });

  it("a checked route that throws Hono's HTTPException answers with its response, and logs no fault", async () => {
    const gateway = await startPair();
    const reply = await gateway.ask('/own/refuses');
    expect([reply.status, reply.body.toString()]).toEqual([418, 'a teapot']);
    expect(lines(gateway)).toMatchObject([{ status: 418 }]);
    expect(gateway.logText()).not.toContain('could not be answered');
  });

  it("a checked route that throws one of the gateway's problems answers with it, and logs no fault", async () => {
    const gateway = await startPair();
    const { status, json } = await gateway.ask('/own/forbids');
    expect([status, json()['code']]).toEqual([403, 'caller-forbidden']);
    expect(gateway.logText()).not.toContain('could not be answered');
  });

  it('a checked route refuses a foreign host, as the gateway does for its own routes', async () => {
    const { ask } = await startPair();
    const { status, json } = await ask('/own/checked', { headers: { host: 'evil.example' } });
    expect([status, json()['code']]).toEqual([421, 'host-not-allowed']);
  });

  it("Hono's own middleware behind a check sets a field of the reply", async () => {
    const { ask } = await startPair();
    expect((await ask('/own/team/hello')).headers['x-powered-by']).toBe('Hono');
  });

  it('a path below a checked prefix that no route takes gets one problem and one line', async () => {
    const gateway = await startPair();
    const { status, json } = await gateway.ask('/own/team/unknown');
    expect([status, json()['code']]).toEqual([404, 'unknown-operation']);
    expect(lines(gateway)).toMatchObject([{ status: 404, problem: 'unknown-operation' }]);
  });

  it('a route with two checks answers 500 and logs why', async () => {
    const gateway = await startPair();
    const { status, json } = await gateway.ask('/own/twice');
    expect([status, json()['code']]).toEqual([500, 'internal-error']);
    expect(lines(gateway)).toHaveLength(1);
    expect(gateway.logText()).toContain('a route takes one check');
  });
});

describe("a team's own route behind `forCallers`", () => {
  it('a route for callers answers 401 without a token, and knows the caller with one', async () => {
    const { token, entry } = enrol('reports');
    const gateway = await startWith([entry]);
    const refused = await gateway.ask('/own/caller');
    expect([refused.status, refused.json()['code']]).toEqual([401, 'caller-unauthenticated']);
    const reply = await gateway.ask('/own/caller', { headers: bearer(token) });
    expect([reply.status, reply.body.toString()]).toEqual([200, 'hello reports']);
    expect(lines(gateway)).toMatchObject([{ status: 401 }, { status: 200, caller: 'reports' }]);
  });

  it("a route for callers counts for the caller's limit", async () => {
    const { token, entry } = enrol('reports', { limit: { perSecond: 0.01, burst: 1 } });
    const { ask } = await startWith([entry]);
    const headers = bearer(token);
    expect((await ask('/own/caller', { headers })).status).toBe(200);
    const refused = await ask('/own/caller', { headers });
    expect([refused.status, refused.json()['code']]).toEqual([429, 'caller-rate-limited']);
  });
});
