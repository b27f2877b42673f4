import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import type { Handler } from '../../src/exchange/layer.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { retryFailures } from '../../src/upstream/retry.ts';
import { answerOf, contextFor, newTrace, requestWith } from '../support/requests.ts';

type Step = number | [number, HeaderFields] | Error;

const options = { limit: 4, baseMs: 500, capMs: 8000, isGated: false };
const unreachable = () => new GatewayError('upstream-unreachable', { proxyError: 'connection_refused' });
const timeout = () => new GatewayError('upstream-timeout', { proxyError: 'http_response_timeout' });

/** An upstream that takes the steps in turn, the last one for ever, and notes when it was asked. */
function upstream(...steps: Step[]): Handler<UpstreamRequest, Answer> & { sentMs: number[] } {
  const sentMs: number[] = [];
  const startMs = performance.now();
  const handler = async (): Promise<Answer> => {
    const step = steps[Math.min(sentMs.length, steps.length - 1)] as Step;
    sentMs.push(Math.round(performance.now() - startMs));
    if (step instanceof Error) throw step;
    return typeof step === 'number' ? answerOf(step) : answerOf(...step);
  };
  return Object.assign(handler, { sentMs });
}

async function outcome(promise: unknown): Promise<unknown> {
  try {
    return ((await promise) as Answer).status;
  } catch (error) {
    return error;
  }
}

/** Sends one request and lets time pass until it is settled or an hour has gone by. */
async function run(next: Handler<UpstreamRequest, Answer>, patienceMs = 25_000, over = options) {
  const trace = newTrace();
  const result = outcome(retryFailures(over)(next)(requestWith(contextFor({}, patienceMs)), trace));
  await vi.advanceTimersByTimeAsync(3_600_000);
  return { result: await result, trace };
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, 'random').mockReturnValue(0);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe('an attempt that is answered with 429', () => {
  it('a 429 is tried again with waits that double', async () => {
    const next = upstream(429, 429, 429, 200);
    const { result, trace } = await run(next);
    expect(result).toBe(200);
    expect(next.sentMs).toEqual([0, 500, 1500, 3500]);
    expect(trace.waitedMs).toBe(3500);
  });

  it('a 429 is tried again later than the backoff says, never earlier, when chance plays', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0.999);
    const next = upstream(429, 429, 200);
    await run(next);
    expect(next.sentMs[1]).toBeGreaterThan(500);
    expect(next.sentMs[1]).toBeLessThanOrEqual(1000);
    expect((next.sentMs[2] as number) - (next.sentMs[1] as number)).toBeGreaterThanOrEqual(1000);
  });

  it('a request that was answered with 429 waits at least as long as Retry-After says', async () => {
    const next = upstream([429, { 'retry-after': '7' }], 200);
    await run(next);
    expect(next.sentMs).toEqual([0, 7000]);
  });

  it('a 429 goes back to a gate below at once, up to the limit of retries, and is told at once where its wait does not fit', async () => {
    const gated = { ...options, isGated: true };
    const next = upstream([429, { 'retry-after': '7' }], 200);
    await run(next, 25_000, gated);
    expect(next.sentMs).toEqual([0, 0]);
    const always = upstream(429);
    expect((await run(always, 25_000, gated)).result).toMatchObject({ code: 'upstream-rate-limited' });
    expect(always.sentMs).toHaveLength(5);
    const late = upstream([429, { 'retry-after': '60' }], 200);
    expect((await run(late, 25_000, gated)).result).toMatchObject({ retryAfterMs: 60_000 });
    expect(late.sentMs).toEqual([0]);
    const failed = upstream([503, { 'retry-after': '7' }], 200);
    await run(failed, 25_000, gated);
    expect(failed.sentMs).toEqual([0, 7000]);
  });

  it('the stated wait counts from the receipt of the 429, not from when the retry got round to it', async () => {
    let attempts = 0;
    const late = async (): Promise<Answer> => {
      if (++attempts > 1) return answerOf(200);
      const answer = answerOf(429, { 'retry-after': '2' });
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return answer;
    };
    expect((await run(late)).trace.waitedMs).toBe(500);
  });

  it('a 429 becomes upstream-rate-limited with the time to wait when retries run out', async () => {
    const next = upstream([429, { 'retry-after': '2' }]);
    const { result } = await run(next);
    expect(next.sentMs).toHaveLength(5);
    expect(result).toMatchObject({ code: 'upstream-rate-limited', receivedStatus: 429 });
    expect((result as GatewayError).retryAfterMs).toBeGreaterThanOrEqual(2000);
  });

  it('a 429 becomes upstream-rate-limited at once when the wait does not fit the deadline', async () => {
    const next = upstream([429, { 'retry-after': '60' }]);
    const trace = newTrace();
    const result = outcome(retryFailures(options)(next)(requestWith(contextFor()), trace));
    await vi.advanceTimersByTimeAsync(0);
    expect(await result).toMatchObject({ code: 'upstream-rate-limited', retryAfterMs: 60_000 });
    expect(trace.waitedMs).toBe(0);
    const justLate = upstream([429, { 'retry-after': '25' }]);
    expect((await run(justLate)).result).toMatchObject({ code: 'upstream-rate-limited' });
    expect(justLate.sentMs).toEqual([0]);
  });

  it('a 429 counts against the limit together with other retries, and is never handed back as a 429', async () => {
    const next = upstream(503, 429);
    const { result } = await run(next);
    expect(next.sentMs).toHaveLength(5);
    expect(result).toMatchObject({ code: 'upstream-rate-limited' });
  });

  it('a 429 is tried again once where the limit of retries is 1', async () => {
    const next = upstream(429);
    await run(next, 25_000, { ...options, limit: 1 });
    expect(next.sentMs).toEqual([0, 500]);
  });

  it('a 429 is not tried again where the limit of retries is 0', async () => {
    const next = upstream(429);
    const { result } = await run(next, 25_000, { ...options, limit: 0 });
    expect(next.sentMs).toEqual([0]);
    expect(result).toMatchObject({ code: 'upstream-rate-limited' });
  });

  it('a request that was answered with 429 follows its deadline as it moves', async () => {
    const next = upstream([429, { 'retry-after': '3' }], 200);
    const context = contextFor({}, 10_000);
    const result = outcome(retryFailures(options)(next)(requestWith(context), newTrace()));
    context.change({ deadlineMs: performance.now() + 1000 });
    await vi.advanceTimersByTimeAsync(5000);
    expect(await result).toMatchObject({ code: 'upstream-rate-limited' });
    expect(next.sentMs).toEqual([0]);
  });
});

describe('an upstream that fails', () => {
  it.each([
    [502, [502, 200], 200, 2],
    [503, [503, 200], 200, 2],
    [504, [504, 200], 200, 2],
    [503, [503, 503, 200], 503, 2],
    [500, [500, 200], 500, 1],
    ...[200, 304, 400, 401, 403, 404, 501].map((status) => [status, [status, 200], status, 1] as const),
    [503, [503, 429, 200], 200, 3],
  ] as [number, Step[], number, number][])(
    'an upstream that answers %i, in all %j, ends a request with %i after %i attempts',
    async (_, steps, status, attempts) => {
      const next = upstream(...steps);
      expect((await run(next)).result).toBe(status);
      expect(next.sentMs).toHaveLength(attempts);
    },
  );

  it('an upstream that cannot be reached is tried again once', async () => {
    const next = upstream(unreachable(), 200);
    expect((await run(next)).result).toBe(200);
    const twice = upstream(unreachable());
    expect((await run(twice)).result).toMatchObject({ code: 'upstream-unreachable' });
    expect(twice.sentMs).toHaveLength(2);
  });

  it('an upstream that does not answer in time is tried again once if the deadline leaves room', async () => {
    const next = upstream(timeout(), 200);
    expect((await run(next)).result).toBe(200);
    const late = upstream(timeout(), 200);
    expect((await run(late, 300)).result).toMatchObject({ code: 'upstream-timeout' });
    expect(late.sentMs).toHaveLength(1);
  });

  it('a request gets one retry in all for failures of different kinds', async () => {
    const next = upstream(unreachable(), timeout(), 503, 200);
    expect((await run(next)).result).toMatchObject({ code: 'upstream-timeout' });
    expect(next.sentMs).toHaveLength(2);
  });

  it('a 503 is handed back as it came when its Retry-After does not fit', async () => {
    const next = upstream([503, { 'retry-after': '120' }]);
    expect((await run(next)).result).toBe(503);
    expect(next.sentMs).toEqual([0]);
    const short = upstream([503, { 'retry-after': '4' }], 200);
    expect((await run(short)).result).toBe(200);
    expect(short.sentMs).toEqual([0, 4000]);
  });

  it.each([
    'upstream-invalid-response',
    'upstream-key-rejected',
    'upstream-key-missing',
    'overloaded',
  ] as const)('a request is not tried again after %s', async (code) => {
    const next = upstream(new GatewayError(code), 200);
    expect((await run(next)).result).toMatchObject({ code });
    expect(next.sentMs).toHaveLength(1);
  });

  it('a 503 is handed back where the circuit or the gate refuses the second attempt', async () => {
    const open = new GatewayError('upstream-unreachable', { retryAfterMs: 5_000 });
    expect((await run(upstream(503, open))).result).toBe(503);
    // A 429 came last: it is about the limit, not about the failure before it.
    const limited = new GatewayError('upstream-rate-limited', { retryAfterMs: 5_000 });
    expect((await run(upstream(503, 429, limited))).result).toBe(limited);
    // The second attempt was sent: its own failure is the newer one.
    const failed = unreachable();
    expect((await run(upstream(503, failed))).result).toBe(failed);
  });

  it('a request is not tried again after a failure that says when to come back: the circuit is open', async () => {
    const next = upstream(new GatewayError('upstream-unreachable', { retryAfterMs: 1000 }), 200);
    expect((await run(next)).result).toMatchObject({ code: 'upstream-unreachable' });
    expect(next.sentMs).toHaveLength(1);
  });

  it('a request is not tried again after an error that is not of the gateway', async () => {
    const failure = new Error('the caller has left');
    const next = upstream(failure, 200);
    expect((await run(next)).result).toBe(failure);
    expect(next.sentMs).toHaveLength(1);
  });

  it.each([
    [1, 1],
    [5, 3],
    [19, 3],
    [20, 4],
    [100, 20],
  ])(
    '%i live requests that fail get %i retries: a fifth of them, and at least three',
    async (live, retries) => {
      let attempts = 0;
      const handler = retryFailures(options)(async () => {
        attempts++;
        await new Promise((resolve) => setTimeout(resolve, 10));
        throw unreachable();
      });
      const results = Array.from({ length: live }, () =>
        outcome(handler(requestWith(contextFor()), newTrace())),
      );
      await vi.advanceTimersByTimeAsync(5000);
      await Promise.all(results);
      expect(attempts).toBe(live + retries);
    },
  );

  it('one caller’s reads that fail leave the retries of other callers to them', async () => {
    const handler = retryFailures(options)(async ({ query }) => {
      await new Promise((resolve) => setTimeout(resolve, 10));
      sent.push(query);
      throw unreachable();
    });
    const sent: string[] = [];
    const ask = (name: string, count: number): void => {
      const one = { ...requestWith(contextFor({ name })), query: name };
      for (let asked = 0; asked < count; asked++) void outcome(handler(one, newTrace()));
    };
    const sentBy = (name: string): number => sent.filter((one) => one === name).length;
    ask('greedy', 100);
    // All retries that there are, of 100 requests, are under way.
    await vi.advanceTimersByTimeAsync(11);
    ask('modest', 3);
    await vi.advanceTimersByTimeAsync(5000);
    // Of 23 live requests four may be tried again: half of these belong to each.
    expect([sentBy('greedy'), sentBy('modest')]).toEqual([120, 5]);
    // They are given back.
    ask('greedy', 5);
    await vi.advanceTimersByTimeAsync(5000);
    expect(sentBy('greedy')).toBe(128);
  });

  it('a read that several callers wait for is tried again where one of them has retries left', async () => {
    let attempts = 0;
    const handler = retryFailures(options)(async ({ query }) => {
      if (query === '?common') attempts++;
      await new Promise((resolve) => setTimeout(resolve, 10));
      throw unreachable();
    });
    const greedy = () => contextFor({ name: 'greedy', weight: 10 });
    for (let asked = 0; asked < 100; asked++) void outcome(handler(requestWith(greedy()), newTrace()));
    await vi.advanceTimersByTimeAsync(11);
    // The one that has used up its own has asked first.
    const context = greedy();
    context.join({ name: 'modest' });
    void outcome(handler({ ...requestWith(context), query: '?common' }, newTrace()));
    await vi.advanceTimersByTimeAsync(5000);
    expect(attempts).toBe(2);
  });

  it('many callers together get no more retries than one would', async () => {
    let attempts = 0;
    const handler = retryFailures(options)(async () => {
      attempts++;
      await new Promise((resolve) => setTimeout(resolve, 10));
      throw unreachable();
    });
    for (let caller = 0; caller < 100; caller++) {
      void outcome(handler(requestWith(contextFor({ name: `${caller}` })), newTrace()));
    }
    await vi.advanceTimersByTimeAsync(5000);
    expect(attempts).toBe(120);
  });

  it('a 429 is tried again even where the budget for retries of failures is spent', async () => {
    const steps: Step[] = [503, 503, 503, 503, 429, 200];
    const handler = retryFailures(options)(upstream(...steps));
    const results = Array.from({ length: 5 }, () => outcome(handler(requestWith(contextFor()), newTrace())));
    await vi.advanceTimersByTimeAsync(5000);
    expect(await Promise.all(results)).toEqual([200, 200, 200, 503, 200]);
  });

  it('requests that are over count no longer for the budget of retries', async () => {
    let step: Step = 200;
    let attempts = 0;
    const handler = retryFailures(options)(async () => {
      attempts++;
      await new Promise((resolve) => setTimeout(resolve, 10));
      if (typeof step === 'number') return answerOf(step);
      throw step;
    });
    const ask = async (count: number): Promise<void> => {
      const all = Array.from({ length: count }, () =>
        outcome(handler(requestWith(contextFor()), newTrace())),
      );
      await vi.advanceTimersByTimeAsync(5000);
      await Promise.all(all);
    };
    await ask(100);
    step = unreachable();
    attempts = 0;
    await ask(5);
    expect(attempts).toBe(5 + 3);
  });

  it('a retry is given back to the budget when it is over, however it ended', async () => {
    const steps: Step[] = Array.from({ length: 10 }, () => [unreachable(), 200]).flat();
    const next = upstream(...steps);
    const handler = retryFailures(options)(next);
    for (let round = 0; round < 10; round++) {
      const result = outcome(handler(requestWith(contextFor()), newTrace()));
      await vi.advanceTimersByTimeAsync(1000);
      expect(await result).toBe(200);
    }
  });
});

describe('a request that is not tried again', () => {
  it.each<[string, Step]>([
    ['an answer with 404', 404],
    ['a failure that no retry helps', new GatewayError('upstream-invalid-response')],
  ])('a request that ends with %s is not said to have waited for a retry', async (_, step) => {
    const trace = newTrace();
    const waits: unknown[] = [];
    trace.span = { traceId: '', spanId: '', traceFlags: '', waited: (place) => waits.push(place) };
    await outcome(retryFailures(options)(upstream(step))(requestWith(contextFor()), trace));
    expect(waits).toEqual([]);
  });
});

describe('an aborted context', () => {
  it.each<[string, Step]>([
    ['for what the upstream states', [429, { 'retry-after': '10' }]],
    ['of the backoff', 503],
  ])('a context that is aborted ends a wait %s at once with its reason', async (_, step) => {
    const context = contextFor();
    const trace = newTrace();
    const result = outcome(retryFailures(options)(upstream(step, 200))(requestWith(context), trace));
    await vi.advanceTimersByTimeAsync(100);
    const reason = new Error('the caller has left');
    context.end(reason);
    await vi.advanceTimersByTimeAsync(0);
    expect(await result).toBe(reason);
    expect(trace.waitedMs).toBe(100);
    expect(vi.getTimerCount()).toBe(0);
  });
});
