import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createContexts } from '../../src/edge/caller-context.ts';
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

const prepare = prepareReplies({ forward: [], cacheControl: 'private, no-cache', variesBy: [] });

function requestFor(headers: Record<string, string> = {}) {
  const stopListening = vi.fn();
  const request = {
    method: 'GET',
    path: '/api/analytics/accounts/',
    query: '',
    headers,
    field: (name: string) => headers[name],
    setHeader: () => {},
    match: { operation: { name: 'list-accounts' }, path: '/analytics/accounts/' },
    onAbort: () => {},
    offAbort: stopListening,
  } as unknown as InboundRequest;
  return { request, stopListening };
}

function forwardTo(outbound: (request: UpstreamRequest) => Answer | Promise<Answer>) {
  const contexts = createContexts();
  const options = { contexts, prepare, timeoutMs: 25_000, forwardHeaders: [], unkeyedHeaders: [] };
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
