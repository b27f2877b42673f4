import fc from 'fast-check';
import { expect, it } from 'vitest';
import { cacheKey } from '../../src/cache/cache-key.ts';
import { createContexts } from '../../src/edge/caller-context.ts';
import { forward } from '../../src/edge/forward.ts';
import type { InboundRequest } from '../../src/edge/inbound.ts';
import { prepareReplies } from '../../src/edge/reply-fields.ts';
import type { UpstreamRequest } from '../../src/exchange/exchange.ts';
import { answerOf, newTrace } from '../support/requests.ts';

const prepare = prepareReplies({ forward: [], cacheControl: 'private, no-cache', variesBy: [] });

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
    { contexts: createContexts(), prepare, timeoutMs: 1_000, forwardHeaders, unkeyedHeaders: ['x-client'] },
    () => false,
  );
  const request = {
    method: 'GET',
    query,
    headers,
    field: (name: string) => headers[name],
    setHeader: () => {},
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
