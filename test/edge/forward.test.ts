import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CallerContexts, preferredWaitSeconds } from '../../src/edge/caller-context.ts';
import { forward } from '../../src/edge/forward.ts';
import type { InboundRequest } from '../../src/edge/inbound.ts';
import { prepareReplies } from '../../src/edge/reply-fields.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import type { Trace } from '../../src/exchange/trace.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { answerOf, newTrace } from '../support/requests.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'Date', 'setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const prepare = prepareReplies({
  CALLER_CACHE_CONTROL: 'private, no-cache',
  CORS_ORIGINS: [],
  FORWARD_REQUEST_HEADERS: [],
  FORWARD_REQUEST_HEADERS_UNKEYED: [],
  FORWARD_RESPONSE_HEADERS: [],
});

function requestFor(headers: Record<string, string> = {}, set: Record<string, string> = {}) {
  const stopListening = vi.fn();
  const request = {
    method: 'GET',
    path: '/api/analytics/accounts/',
    query: '',
    headers,
    field: (name: string) => headers[name],
    setHeader(name: string, value: string) {
      set[name] = value;
    },
    replyHeader: (name: string) => set[name],
    match: { operation: { name: 'list-accounts' }, path: '/analytics/accounts/' },
    onAbort: () => {},
    offAbort: stopListening,
  } as unknown as InboundRequest;
  return { request, stopListening, set };
}

function forwardTo(outbound: (request: UpstreamRequest) => Answer | Promise<Answer>) {
  const contexts = new CallerContexts({ timeoutMs: 25_000 });
  const options = { contexts, prepare, forwardHeaders: [], unkeyedHeaders: [] };
  const handle = forward(options, () => false);
  const workspace = { name: '', send: outbound };
  return {
    contexts,
    handle: (request: InboundRequest, trace: Trace) => handle(Object.assign(request, { workspace }), trace),
  };
}

describe('a request that has been answered', () => {
  it.each<[string, (context: UpstreamRequest['context']) => Promise<Answer>]>([
    ['with an answer', async () => answerOf(200)],
    ['with a failure', async () => Promise.reject(new Error('no'))],
  ])('a request that has been answered %s waits for nothing more', async (_, answer) => {
    const { contexts, handle } = forwardTo(({ context }) => {
      // It waits, as anything does that goes up.
      expect(context.signal.aborted).toBe(false);
      return answer(context);
    });
    const { request, stopListening } = requestFor();
    const answered = Promise.resolve(handle(request, newTrace()));
    expect([contexts.waiting, vi.getTimerCount()]).toEqual([1, 1]);
    await answered.catch(() => undefined);
    expect([contexts.waiting, vi.getTimerCount()]).toEqual([0, 0]);
    expect(stopListening).toHaveBeenCalledOnce();
  });
});

describe('Prefer: wait (RFC 7240 section 4.3)', () => {
  it.each<[string, number | undefined]>([
    ['wait=5', 5],
    ['WAIT = 5', 5],
    ['wait="5"', 5],
    ['wait=0', 0],
    ['respond-async, wait=5', 5],
    ['wait=5; foo=bar', 5],
    ['wait=5, wait=1', 5],
    ['wait, wait=1', undefined],
    ['wait=-1', undefined],
    ['wait=5s', undefined],
    ['wait=1.5', undefined],
    ['wait=9999999999', undefined],
    ['waiting=5', undefined],
    ['foo="a, wait=1", wait=2', 2],
    ['foo="a, wait=1', undefined],
    ['', undefined],
  ])('%j prefers so many seconds', (field, seconds) => {
    expect(preferredWaitSeconds(field)).toBe(seconds);
  });

  it.each<[string, number, string | undefined]>([
    ['wait=5', 5_000, 'wait=5'],
    ['wait=25', 25_000, undefined],
    ['wait=60', 25_000, undefined],
    ['respond-async', 25_000, undefined],
  ])(
    '%s shortens how long a request may take, and never lengthens it',
    async (prefer, timeoutMs, applied) => {
      const { handle } = forwardTo(({ context }) => {
        expect(context.deadlineMs - trace.startedMs).toBe(timeoutMs);
        return answerOf(200);
      });
      const trace = newTrace();
      const { request, set } = requestFor({ prefer });
      await handle(request, trace);
      expect(set['preference-applied']).toBe(applied);
    },
  );

  it('a request whose preferred wait is over is a 504, and no failure of the upstream', async () => {
    const reasons: unknown[] = [];
    const { handle } = forwardTo(async ({ context }) => {
      const { promise, reject } = Promise.withResolvers<Answer>();
      context.watch({
        onEnd(reason) {
          reasons.push(reason);
          reject(reason);
        },
      });
      return promise;
    });
    const answered = Promise.resolve(handle(requestFor({ prefer: 'wait=2' }).request, newTrace()));
    const outcome = answered.catch((error: unknown) => error);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await outcome).toMatchObject({
      code: 'upstream-timeout',
      detail: expect.stringContaining('Prefer: wait'),
    });
    // A problem would open the circuit: other callers wait for longer.
    expect(reasons).toEqual([expect.not.objectContaining({ code: expect.anything() })]);
  });
});

describe('Server-Timing', () => {
  const page = { 'access-control-allow-origin': 'https://good.example' };
  it.each<[string, Partial<Trace>, string | undefined]>([
    ['a hit', { cache: { hit: true } }, undefined],
    [
      'a miss',
      { cache: { hit: false, forwarded: 'uri-miss' }, attempts: 1, upstreamMs: 84.4 },
      'cache;desc=miss, upstream;dur=84',
    ],
    [
      'a miss that waited for its turn',
      { cache: { hit: false, forwarded: 'uri-miss' }, attempts: 2, upstreamMs: 84.6, waitedMs: 11.8 },
      'cache;desc=miss, wait;dur=12, upstream;dur=85',
    ],
    ['a joined read', { cache: { hit: false, collapsed: true } }, 'cache;desc=joined'],
    ['a read that nothing was done for', {}, undefined],
  ])('says of %s how long what took, to pages of listed origins too', async (_read, facts, timing) => {
    const { handle } = forwardTo(() => answerOf(200));
    const { request, set } = requestFor({}, { ...page });
    await handle(request, Object.assign(newTrace(), facts));
    expect([set['server-timing'], set['timing-allow-origin']]).toEqual([
      timing,
      timing && 'https://good.example',
    ]);
  });

  it('is shown to no page where none is listed', async () => {
    const { handle } = forwardTo(() => answerOf(200));
    const { request, set } = requestFor();
    await handle(request, Object.assign(newTrace(), { attempts: 1 }));
    expect(set).toEqual({ 'server-timing': 'upstream;dur=0' });
  });
});

describe('a caller’s own condition (RFC 9110 section 13)', () => {
  const ask = async (status: number, fields: HeaderFields, headers: Record<string, string>, more = {}) =>
    (await forwardTo(() => ({ ...answerOf(status, fields), ...more })).handle(
      requestFor(headers).request,
      newTrace(),
    )) as { status: number };
  it.each<[string, number, string, object, number]>([
    ['its tag', 200, '"1"', {}, 304],
    ['the tag of a coding that there is', 200, '"1-br"', { encoded: { br: Buffer.from('x') } }, 304],
    ['the tag of another coding', 200, '"1-gzip"', { encoded: { br: Buffer.from('x') } }, 200],
    ['the tag of a coding where there is none', 200, '"1-br"', {}, 200],
    ['the tag of a coding that is not made yet', 200, '"1-br"', { encoded: {} }, 200],
    ['only about a 200 (13.2.1)', 204, '"1"', {}, 204],
    ['only about a 200 (13.2.1), whatever exists', 204, '*', {}, 204],
    ['not about an error', 404, '*', {}, 404],
  ])('a caller’s own condition is answered: %s', async (_, status, tag, more, expected) => {
    expect((await ask(status, { etag: '"1"' }, { 'if-none-match': tag }, more)).status).toBe(expected);
  });
});

describe('Vary says what callers’ answers differ by', () => {
  const vary = (fields: HeaderFields, more = {}) =>
    prepare({ ...answerOf(200, fields), ...more }).fields('identity');
  it.each<[string, HeaderFields, object, string | undefined]>([
    ['nothing, on a small answer', {}, {}, undefined],
    ['codings, where there may be any', {}, { encoded: {} }, 'accept-encoding'],
    ['what the upstream says', { vary: 'Accept-Language' }, {}, 'Accept-Language'],
    ['both', { vary: 'Accept-Language' }, { encoded: {} }, 'Accept-Language, accept-encoding'],
    [
      'each member once, spelled as it came first',
      { vary: ['Accept-Encoding, X-A', 'x-a'] },
      { encoded: {} },
      'Accept-Encoding, X-A',
    ],
    ['never the key, which is ours', { vary: 'X-API-Key, Accept-Language' }, {}, 'Accept-Language'],
    ['the key alone', { vary: 'x-api-key' }, {}, undefined],
  ])('Vary of a reply names %s', (_, fields, more, expected) => {
    const said = vary(fields, more);
    expect(said.includes('vary') ? said[said.indexOf('vary') + 1] : undefined).toBe(expected);
  });
});
