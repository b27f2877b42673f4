import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  cacheKey,
  exactRequestKey,
  selection,
  varyNames,
  withoutCallerIds,
} from '../../src/cache/cache-key.ts';
import { CallerContexts } from '../../src/edge/caller-context.ts';
import { forward } from '../../src/edge/forward.ts';
import type { InboundRequest } from '../../src/edge/inbound.ts';
import { prepareReplies } from '../../src/edge/reply-fields.ts';
import type { UpstreamRequest } from '../../src/exchange/exchange.ts';
import { answerOf, newTrace } from '../support/requests.ts';

const prepare = prepareReplies({
  CALLER_CACHE_CONTROL: 'private, no-cache',
  CORS_ORIGINS: [],
  FORWARD_REQUEST_HEADERS: [],
  FORWARD_REQUEST_HEADERS_UNKEYED: [],
  FORWARD_RESPONSE_HEADERS: [],
});

interface Asked {
  readonly operation: string;
  readonly path: string;
  readonly query: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** What a gateway with these forwarded fields makes of a caller's request. */
function upstreamRequestOf({ operation, path, query, headers }: Asked, forwardHeaders: readonly string[]) {
  const sent: UpstreamRequest[] = [];
  const handle = forward(
    {
      contexts: new CallerContexts({ timeoutMs: 1_000 }),
      prepare,
      forwardHeaders,
      unkeyedHeaders: ['x-client'],
    },
    () => false,
  );
  const request = {
    method: 'GET',
    query,
    headers,
    field: (name: string) => headers[name],
    setHeader: () => {},
    replyHeader: () => undefined,
    match: { operation: { name: operation }, path },
    workspace: {
      name: '',
      send: (one: UpstreamRequest) => {
        sent.push(one);
        return answerOf(200);
      },
    },
  };
  void handle(request as unknown as InboundRequest, newTrace());
  return sent[0] as UpstreamRequest;
}

// Few values, of which some look like parts of a key: many pairs are equal or nearly so.
const text = fc.constantFrom<string>('', '1', '1:', '11', 'x', '3:1:x-ax', 'a,b', 'a, b', 'A');
const asked = fc.record<Asked>({
  operation: fc.constantFrom('a', 'ab'),
  path: fc.constantFrom('/', '/b/'),
  query: text,
  headers: fc.dictionary(fc.constantFrom('x-a', 'x-ax', 'x-client', 'x-request-id', 'accept'), text, {
    maxKeys: 4,
  }),
});

it('two requests have the same key exactly where the same bytes go up but for ids and the fields that no key holds', () => {
  // Whatever order the settings of each gateway name them in.
  const names = fc.constantFrom<readonly string[]>(['x-client', 'x-a', 'x-ax'], ['x-ax', 'x-a', 'x-client']);
  const bytesOf = ({ operation, path, query, keyedHeaders }: UpstreamRequest): string =>
    JSON.stringify([operation, path, query, Object.entries(keyedHeaders)]);
  // One that writes the field into its query.
  const plain = { operation: 'a', path: '/', query: '1', headers: { 'x-a': '1' } };
  const order = ['x-client', 'x-a', 'x-ax'] as const;
  fc.assert(
    fc.property(asked, asked, names, names, (one, other, ownNames, otherNames) => {
      const [first, second] = [upstreamRequestOf(one, ownNames), upstreamRequestOf(other, otherNames)];
      // All that is in no key is an id, or was said to be in none.
      expect([...Object.keys(first.headers), ...Object.keys(first.ids)]).toEqual(
        'x-client' in one.headers ? ['x-client', 'x-request-id'] : ['x-request-id'],
      );
      expect(cacheKey(first, 1) === cacheKey(second, 1)).toBe(bytesOf(first) === bytesOf(second));
    }),
    { numRuns: 3_000, examples: [[plain, { ...plain, query: '13:1:x-a1', headers: {} }, order, order]] },
  );
});

it('no answer of one generation of the key is found with another', () => {
  const request = upstreamRequestOf({ operation: 'a', path: '/', query: '', headers: {} }, []);
  const keys = [undefined, 0, 1, 2, 12].map((generation) => cacheKey(request, generation));
  expect(new Set(keys).size).toBe(keys.length);
});

it('without the ids of its caller a request is the same read, and one that has none of them is itself', () => {
  const plain = upstreamRequestOf({ operation: 'a', path: '/', query: 'b', headers: { 'x-a': '1' } }, [
    'x-a',
  ]);
  const named = { ...plain, ids: { 'x-request-id': 'mine' }, callerIds: { 'x-request-id': 'mine' } };
  expect(withoutCallerIds({ ...plain, callerIds: undefined })).toHaveProperty('ids', plain.ids);
  expect(withoutCallerIds(named)).toEqual({ ...plain, ids: {}, callerIds: undefined });
});

describe('Vary (RFC 9111 section 4.1)', () => {
  it.each<[string, string | readonly string[] | undefined, readonly string[] | '*']>([
    ['absent', undefined, []],
    ['empty', '', []],
    ['one', 'Accept-Language', ['accept-language']],
    ['sorted, each once', 'b, A ,b', ['a', 'b']],
    ['two lines', ['b', 'a'], ['a', 'b']],
    ['a star', '*', '*'],
    ['a star and a name', '*, foo', '*'],
    ['a name and a star', 'foo, *', '*'],
    ['two stars', '*, *', '*'],
    ['an empty member and a star', ', *', '*'],
    ['a star in the second line', ['', '*'], '*'],
    ['a star with space', '\t* ', '*'],
    ['a star with a parameter', '*;q=1', '*'],
    ['a quoted star', '"*"', '*'],
    ['a star within a name', 'foo*', '*'],
    ['no field name', 'foo bar', '*'],
    ['the request id', 'X-Request-ID', '*'],
    ['the trace', 'accept, traceparent', '*'],
    ['the trace state', 'TraceState', '*'],
  ])('the names in Vary are right: %s', (_, field, expected) => {
    expect(varyNames(field)).toEqual(expected);
  });
});

describe('two requests match (RFC 9111 section 4.1)', () => {
  const same = (name: string, a: Record<string, string>, b: Record<string, string>) =>
    selection([name], a) === selection([name], b);
  it.each<[string, string, Record<string, string>, Record<string, string>, boolean]>([
    ['equal values', 'a', { a: '1' }, { a: '1' }, true],
    ['other values', 'a', { a: '1' }, { a: '2' }, false],
    ['other case of a value', 'a', { a: 'x' }, { a: 'X' }, false],
    ['absent twice', 'a', {}, { b: '1' }, true],
    ['absent is not empty', 'a', {}, { a: '' }, false],
    ['absent is not "-"', 'a', {}, { a: '-' }, false],
    ['space around commas', 'a', { a: 'x, y' }, { a: ' x ,y' }, true],
    ['space within quotes counts', 'a', { a: '"x, y"' }, { a: '"x,y"' }, false],
    [
      'languages in any case',
      'accept-language',
      { 'accept-language': 'FR-ch' },
      { 'accept-language': 'fr-CH' },
      true,
    ],
    ['what every object inherits is absent', 'constructor', {}, {}, true],
    [
      'words with and without a comma',
      'accept-language',
      { 'accept-language': 'a,b' },
      { 'accept-language': 'ab' },
      false,
    ],
    ['a field that is not forwarded', 'cookie', { a: '1' }, { a: '2' }, true],
  ])('two requests match or not: %s', (_, name, a, b, expected) => {
    expect(same(name, a, b)).toBe(expected);
  });
  it('inherited members of an object are no request fields', () => {
    expect(selection(['constructor', '__proto__'], {})).toBe('-;-;');
  });
  it('values of two fields cannot run into each other', () => {
    expect(selection(['a', 'b'], { a: '1;1:2', b: '3' })).not.toBe(
      selection(['a', 'b'], { a: '1', b: '2;1:3' }),
    );
    expect(selection(['a', 'b'], { a: '1' })).not.toBe(selection(['a', 'b'], { b: '1' }));
  });
});

describe('the same request is', () => {
  it.each<[string, Record<string, string>, Record<string, string>, boolean]>([
    ['equal in every forwarded field', { a: '1', b: '2' }, { b: '2', a: '1' }, true],
    ['not so with another value', { a: '1' }, { a: '2' }, false],
    ['not so with names cut at another place', { ab: '1', c: '2' }, { a: '1', bc: '2' }, false],
    ['not so with a further field', { a: '1' }, { a: '1', b: '' }, false],
    ['not so with another name', { a: '1' }, { b: '1' }, false],
  ])('the very same request is %s', (_, a, b, expected) => {
    expect(exactRequestKey(a) === exactRequestKey(b)).toBe(expected);
  });
});
