import { describe, expect, it } from 'vitest';
import { mintToken } from '../../src/callers/token.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const reads = { UPSTREAM_READS: '/analytics/reports/:id/' };

/** Neither the upstream, the reply nor the log has seen the value. */
async function expectRefusal(pair: TestGateway, path: string, value: string, headers = {}): Promise<void> {
  const before = pair.standIn.requests.length;
  const came = await pair.ask(path, { headers });
  expect({ status: came.status, code: came.json()['code'] }, path).toEqual({
    status: 400,
    code: 'invalid-request',
  });
  expect(pair.standIn.requests.length).toBe(before);
  for (const text of [came.body.toString(), JSON.stringify(came.headers), pair.logText()]) {
    expect(text).not.toContain(value);
  }
  expect(pair.logLines().at(-1)).toMatchObject({ status: 400, reason: 'a credential in the URL' });
}

describe('a credential in a URL', () => {
  it('a credential in a URL is refused when it is a token of our making, under any name, as a name, or in the path', async () => {
    const { token, entry } = enrol('script', { operations: ['list-accounts', reads.UPSTREAM_READS] });
    const pair = await startWith([entry], reads);
    const other = mintToken();
    for (const value of [token, other]) {
      const headers = bearer(token);
      for (const query of [`token=${value}`, `x=${value}`, `${value}`, `a=1&${value}=1`]) {
        await expectRefusal(pair, `${accounts}?${query}`, value, headers);
      }
      await expectRefusal(pair, `/api/analytics/reports/${value}/`, value, headers);
      await expectRefusal(pair, `/api/nothing/${value}`, value, headers);
    }
  });

  it('a credential in a URL is refused when it is a token of our making, and the gateway has no callers file', async () => {
    const pair = await startPair();
    const token = mintToken();
    await expectRefusal(pair, `${accounts}?token=${token}`, token);
  });

  it('a credential in a URL is refused when it is the upstream key, as it is or encoded', async () => {
    const pair = await startPair(reads);
    const encoded = standInKey.replaceAll(/[a-z]/g, (letter) => `%${letter.charCodeAt(0).toString(16)}`);
    const twice = encodeURIComponent(encoded);
    for (const value of [standInKey, encoded, twice, encodeURIComponent(twice)]) {
      await expectRefusal(pair, `${accounts}?x=${value}`, standInKey);
    }
    await expectRefusal(pair, `/api/analytics/reports/${standInKey}/`, standInKey);
  });

  it('a credential in a URL is refused when it is the credential that came with the request, although another system made it', async () => {
    const pair = await startPair();
    const made = 'c0ffee0123456789abcdef';
    await expectRefusal(pair, `${accounts}?x=${made}`, made, { 'X-API-Key': made });
    await expectRefusal(pair, `${accounts}?x=%63${made.slice(1)}`, made, bearer(made));
    // As short as a key may be, and nothing beside it.
    const short = made.slice(0, 16);
    await expectRefusal(pair, `${accounts}?${short}`, short, bearer(short));
  });

  it('ordinary queries and paths pass the search for credentials', async () => {
    const { ask, standIn } = await startPair(reads);
    expect((await ask(`${accounts}?page=2&q=a%20b`, { headers: { 'X-API-Key': 'a' } })).status).toBe(200);
    expect(standIn.requests.at(-1)?.target).toContain('?page=2&q=a%20b');
    expect((await ask('/api/analytics/nothing/')).status).toBe(404);
  });
});

describe('a credential in X-Request-ID', () => {
  it('a credential in X-Request-ID is neither repeated, logged nor sent up: the request gets an id of ours', async () => {
    const { token, entry } = enrol('script');
    const pair = await startWith([entry]);
    const made = 'c0ffee0123456789abcdef';
    for (const [id, headers] of [
      [token, bearer(token)],
      [`case-${mintToken()}`, bearer(token)],
      [`case-${made}`, { 'X-API-Key': made }],
      [`case-${standInKey}`, bearer(token)],
      [`case-${made}`, { Authorization: `Basic ${Buffer.from(`a:${made}`).toString('base64')}` }],
    ] as const) {
      const came = await pair.ask(accounts, { headers: { ...headers, 'X-Request-ID': id } });
      expect(came.headers['x-request-id']).toMatch(/^[\w-]{16}-\w+$/);
      expect(pair.logText()).not.toContain(id);
      expect(JSON.stringify(pair.standIn.requests)).not.toContain(id);
    }
  });
});

describe('a credential in a field that goes up', () => {
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const made = 'c0ffee0123456789abcdef';
  const { token, entry } = enrol('script');
  const credentials: readonly [name: string, credential: string, headers: Record<string, string>][] = [
    ['a token of the caller', token, bearer(token)],
    ['the upstream key', standInKey, bearer(token)],
  ];

  it.each(credentials)('%s in tracestate is not sent up, and the read goes on', async (_, value, headers) => {
    const pair = await startWith([entry]);
    const came = await pair.ask(accounts, {
      headers: { ...headers, traceparent, tracestate: `a=x${value}` },
    });
    expect(came.status).toBe(200);
    expect(pair.standIn.requests[0]?.headers).toHaveProperty('traceparent', traceparent);
    expect(pair.standIn.requests[0]?.headers).not.toHaveProperty('tracestate');
  });

  it('a traceparent that holds a credential is neither sent up nor logged, and the read goes on', async () => {
    const pair = await startWith([entry]);
    const given = '4bf92f3577b34da6a3ce929d0e0e4736';
    const came = await pair.ask(accounts, { headers: { ...bearer(given), traceparent, tracestate: 'a=b' } });
    expect(came.status).toBe(401);
    expect(pair.logText()).not.toContain(given);
    const anonymous = await startPair();
    const fields = { ...bearer(given), traceparent, tracestate: 'a=b' };
    expect((await anonymous.ask(accounts, { headers: fields })).status).toBe(200);
    expect(anonymous.logText()).not.toContain(given);
    expect(anonymous.standIn.requests[0]?.headers).not.toHaveProperty('traceparent');
    expect(anonymous.standIn.requests[0]?.headers).not.toHaveProperty('tracestate');
  });

  it.each(credentials)('%s in a forwarded field is refused', async (_, value, headers) => {
    const pair = await startWith([entry], { FORWARD_REQUEST_HEADERS: 'x-team' });
    const came = await pair.ask(accounts, { headers: { ...headers, 'X-Team': `blue ${value}` } });
    expect([came.status, came.json()['code']]).toEqual([400, 'invalid-request']);
    expect(came.json()['detail']).toContain('x-team');
    expect(pair.standIn.requests).toEqual([]);
    expect(pair.logText()).not.toContain(value);
    expect(pair.logLines().at(-1)).toMatchObject({ reason: 'a credential in the field x-team' });
    expect((await pair.ask(accounts, { headers: { ...headers, 'X-Team': 'blue' } })).status).toBe(200);
  });

  it('the credential of a request to a gateway without callers is found as well, whatever its scheme', async () => {
    const pair = await startPair({ FORWARD_REQUEST_HEADERS: 'x-team' });
    for (const headers of [{ 'X-API-Key': made }, bearer(made), { authorization: `Basic ${made}` }]) {
      const fields = { ...headers, traceparent, tracestate: `a=${made}` };
      expect((await pair.ask(accounts, { headers: { ...fields, 'X-Team': made } })).status).toBe(400);
      expect((await pair.ask(accounts, { headers: fields })).status).toBe(200);
    }
    expect(JSON.stringify(pair.standIn.requests)).not.toContain(made);
  });
});
