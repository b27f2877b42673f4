import { describe, expect, it } from 'vitest';
import type { AnswerPolicy } from '../../src/cache/cache-rules.ts';
import { choosePublication } from '../../src/cache/shared-reads.ts';
import { type ExchangeOutcome, failedOutcome } from '../../src/cache/store-response.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import { FixedContext } from '../../src/exchange/request-context.ts';

const context = new FixedContext(1_000, { name: 'a', weight: 1, background: false });
const request: UpstreamRequest = {
  operation: 'list-accounts',
  path: '/analytics/accounts/',
  query: '',
  keyedHeaders: {},
  headers: {},
  ids: {},
  callerIds: undefined,
  cacheControl: undefined,
  pragma: undefined,
  context,
};
const answer: Answer = {
  status: 200,
  headers: {},
  body: '{}',
  sentMs: 90,
  receivedMs: 100,
  receivedAt: 1_000_000,
  generation: 1,
};
const policy: AnswerPolicy = {
  storable: true,
  shareable: true,
  withheld: [],
  exactRequestOnly: false,
  ageZeroMs: 100,
  receivedMs: 100,
  freshUntilMs: 1_100,
  staleWhileRevalidateUntilMs: 2_100,
  staleIfErrorUntilMs: 5_100,
  mayBeStale: true,
};
const answered = (more: Partial<Extract<ExchangeOutcome, { kind: 'answered' }>> = {}): ExchangeOutcome => ({
  kind: 'answered',
  answer,
  shared: answer,
  policy,
  fits: () => true,
  stored: true,
  isDueToIds: false,
  forwardStatus: undefined,
  ...more,
});
const timeout = new GatewayError('upstream-timeout');
const error = { ...answer, status: 404 };

describe('what an exchange means for other gateways', () => {
  it('an answer that was stored lies there for as long as it is fresh or may be served stale', () => {
    expect(choosePublication(request, answered(), true)).toEqual({
      kind: 'stored',
      answer,
      forwardStatus: undefined,
      untilMs: 5_100,
    });
  });

  it.each<[string, ExchangeOutcome, boolean]>([
    [
      'an answer without any lifetime, which replaces what is stored',
      answered({
        policy: {
          ...policy,
          freshUntilMs: -Infinity,
          staleWhileRevalidateUntilMs: -Infinity,
          staleIfErrorUntilMs: -Infinity,
        },
      }),
      true,
    ],
    ['an answer too large to be stored, which replaces what is stored', answered({ stored: false }), true],
    [
      'an error that is not stored because a fresh answer is, which replaces nothing',
      answered({ stored: false, answer: error, policy: { ...policy, exactRequestOnly: true } }),
      false,
    ],
    [
      'an error that states no lifetime, which replaces what is stored',
      answered({
        stored: false,
        answer: error,
        policy: { ...policy, storable: false, exactRequestOnly: true },
      }),
      true,
    ],
    [
      'an answer that may not be stored, which replaces what is stored',
      answered({ stored: false, policy: { ...policy, storable: false } }),
      true,
    ],
    [
      'a server failure, which replaces nothing',
      answered({
        stored: false,
        answer: { ...answer, status: 503 },
        policy: { ...policy, storable: false, exactRequestOnly: true },
      }),
      false,
    ],
  ])('%s is for waiting gateways alone', (_name, outcome, replaces) => {
    expect(choosePublication(request, outcome, true)).toMatchObject({ kind: 'outcome', replaces });
  });

  it('an answer to a request with ids of its caller is shared, since they change no answer but an error', () => {
    expect(
      choosePublication({ ...request, callerIds: { traceparent: 'x' } }, answered(), true),
    ).toMatchObject({
      kind: 'stored',
    });
  });

  it('an answer for one request alone says that such reads wait for no other', () => {
    expect(choosePublication(request, answered({ shared: undefined }), true)).toMatchObject({
      kind: 'not shareable',
    });
  });

  it('a failure of the upstream is shared', () => {
    expect(choosePublication(request, failedOutcome(request, timeout, true), true)).toEqual({
      kind: 'outcome',
      outcome: { kind: 'failed', error: timeout },
      replaces: false,
    });
  });

  const ended = new FixedContext(1_000, context.flow);
  ended.end(new Error('it left'));
  const withIds = { ...request, callerIds: { traceparent: 'x' } };
  it.each<[string, UpstreamRequest, ExchangeOutcome, boolean]>([
    ['a failure before anything was sent', request, failedOutcome(request, timeout, false), true],
    [
      'a failure of this gateway alone',
      request,
      failedOutcome(request, new GatewayError('upstream-key-missing'), true),
      true,
    ],
    [
      'a refusal of the gate, whose queue is that of this gateway',
      request,
      failedOutcome(request, new GatewayError('upstream-rate-limited'), true),
      true,
    ],
    ['a fault', request, failedOutcome(request, new TypeError('a fault'), true), true],
    [
      'a failure because all subscribers left',
      { ...request, context: ended },
      failedOutcome(request, timeout, true),
      true,
    ],
    ['a failure of a request with ids of its caller', withIds, failedOutcome(withIds, timeout, true), true],
    [
      'an error to a request with ids of its caller, or an answer that repeats them,',
      withIds,
      answered({ shared: undefined, stored: false, isDueToIds: true }),
      true,
    ],
    ['an answer where all say no-store', request, answered(), false],
  ])('%s says nothing', (_name, sent, outcome, mayStore) => {
    expect(choosePublication(sent, outcome, mayStore)).toEqual({ kind: 'nothing' });
  });
});
