import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError, problems } from '../../src/errors.ts';
import type { Answer } from '../../src/exchange/exchange.ts';
import type { Flow } from '../../src/exchange/request-context.ts';
import { type Gate, type GateChange, type GateOptions, paceAttempts } from '../../src/gate/gate.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { retryFailures } from '../../src/upstream/retry.ts';
import { answerOf, contextFor, type LiveContext, newTrace, requestWith } from '../support/requests.ts';

const options: GateOptions = { maxClosedMs: 300_000, baseMs: 500, capMs: 8000, random: () => 0 };

interface Sent {
  name: string;
  atMs: number;
  answer: (status: number, headers?: HeaderFields) => void;
  fail: (error: unknown) => void;
}

/** A gate before an upstream that answers when told to. */
function gated(over: Partial<GateOptions> = {}) {
  const startMs = performance.now();
  const sent: Sent[] = [];
  const changes: GateChange[] = [];
  const gate: Gate = paceAttempts({ ...options, onChange: (change) => changes.push(change), ...over });
  const handler = gate.layer((request) => {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    sent.push({
      name: request.context.flow.name,
      atMs: Math.round(performance.now() - startMs),
      answer: (status, headers) => resolve(answerOf(status, headers)),
      fail: reject,
    });
    return promise;
  });
  const ask = (flow: Partial<Flow> = {}, patienceMs = 25_000) => {
    const context: LiveContext = contextFor(flow, patienceMs);
    const trace = newTrace();
    const result = (async (): Promise<unknown> => {
      try {
        return (await handler(requestWith(context), trace)).status;
      } catch (error) {
        return error;
      }
    })();
    return { context, trace, result };
  };
  return { gate, sent, changes, ask };
}

const flush = () => vi.advanceTimersByTimeAsync(0);

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

describe('a 429 to any caller', () => {
  it('a 429 closes the gate until the absolute time of its Retry-After, and then one trial goes', async () => {
    const { sent, ask } = gated();
    const first = ask();
    sent[0]?.answer(429, { 'retry-after': '3' });
    expect(await first.result).toBe(429);
    await vi.advanceTimersByTimeAsync(1000);
    const waiting = Array.from({ length: 5 }, () => ask());
    await vi.advanceTimersByTimeAsync(1999);
    expect(sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(sent).toHaveLength(2);
    expect(sent[1]?.atMs).toBe(3000);
    expect(waiting[0]?.trace.gate).toBe('trial');
    await vi.advanceTimersByTimeAsync(60);
    expect(sent).toHaveLength(2);
    sent[1]?.answer(200);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sent.length).toBeGreaterThan(2);
    expect(waiting[1]?.trace).toMatchObject({ gate: 'paced' });
    expect(waiting[1]?.trace.waitedMs).toBeGreaterThan(2000);
  });

  it('the gate closes for longer and longer when trials are answered with 429 and no wait is stated', async () => {
    const { sent, ask } = gated();
    ask();
    sent[0]?.answer(429);
    await flush();
    for (let i = 0; i < 5; i++) ask();
    const gaps: number[] = [];
    for (let i = 1; i < 5; i++) {
      while (sent.length <= i) await vi.advanceTimersByTimeAsync(10);
      gaps.push((sent[i] as Sent).atMs - (sent[i - 1] as Sent).atMs);
      sent[i]?.answer(429);
      await flush();
    }
    expect(gaps).toEqual([500, 1000, 2000, 4000]);
  });

  it('the end of a closing moves only forward: a shorter wait told later opens nothing', async () => {
    const { sent, ask } = gated();
    ask();
    ask();
    sent[0]?.answer(429, { 'retry-after': '10' });
    await flush();
    sent[1]?.answer(429, { 'retry-after': '1' });
    await flush();
    ask();
    await vi.advanceTimersByTimeAsync(9999);
    expect(sent).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(1);
    expect(sent).toHaveLength(3);
  });

  it('a 429 holds all callers for GATE_MAX_CLOSED at most, and they are still told the time that the upstream stated', async () => {
    const { sent, ask } = gated({ maxClosedMs: 60_000 });
    ask();
    sent[0]?.answer(429, { 'retry-after': '3600' });
    await flush();
    const early = await ask().result;
    expect(early).toMatchObject({
      code: 'upstream-rate-limited',
      retryAfterMs: 3_600_000,
      receivedStatus: 429,
    });
    await vi.advanceTimersByTimeAsync(60_000);
    ask();
    await flush();
    expect(sent).toHaveLength(2);
    const late = ask();
    sent[1]?.answer(429, { 'retry-after': '3540' });
    expect(await late.result).toMatchObject({ code: 'upstream-rate-limited', retryAfterMs: 3_540_000 });
  });

  it('the gate forgets the stated time once a trial is accepted', async () => {
    const { gate, sent, ask } = gated({ maxClosedMs: 60_000 });
    ask();
    sent[0]?.answer(429, { 'retry-after': '3600' });
    await vi.advanceTimersByTimeAsync(60_000);
    ask();
    sent[1]?.answer(200);
    await flush();
    expect(gate.snapshot()).toMatchObject({ state: 'paced', statedWaitSeconds: 0 });
    await vi.advanceTimersByTimeAsync(5000);
    ask();
    sent[2]?.answer(429);
    await flush();
    expect(await ask({}, 50).result).toMatchObject({ retryAfterMs: 1000 });
  });

  it('the next trial goes when the first gets no answer', async () => {
    const { sent, ask } = gated();
    ask();
    sent[0]?.answer(429);
    await flush();
    const trial = ask();
    ask();
    await vi.advanceTimersByTimeAsync(500);
    sent[1]?.fail(new GatewayError('upstream-unreachable'));
    expect(await trial.result).toMatchObject({ code: 'upstream-unreachable' });
    expect(sent).toHaveLength(3);
  });

  it('the gate is off where GATE_MAX_CLOSED is 0: attempts pass as they come', async () => {
    const { gate, sent, ask } = gated({ maxClosedMs: 0 });
    for (let i = 0; i < 100; i++) ask();
    expect(sent).toHaveLength(100);
    expect(gate.snapshot().state).toBe('off');
  });
});

describe('a closed gate without requests', () => {
  const closedFor = async (retryAfter: string) => {
    const subject = gated();
    subject.ask();
    subject.sent[0]?.answer(429, { 'retry-after': retryAfter });
    await flush();
    return subject;
  };

  it('a closed gate without requests shows by the clock that it is about to try, and later that it is open', async () => {
    const { gate, changes } = await closedFor('60');
    expect(gate.snapshot()).toMatchObject({ state: 'closed', closedForSeconds: 60 });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(gate.snapshot()).toMatchObject({ state: 'half-open', closedForSeconds: 0, statedWaitSeconds: 0 });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(gate.snapshot().state).toBe('half-open');
    await vi.advanceTimersByTimeAsync(1);
    expect(gate.snapshot()).toMatchObject({ state: 'open', attemptsPerSecond: null, window: 10 });
    expect(changes.map(({ to }) => to)).toEqual(['closed', 'half-open', 'open']);
  });

  it('a closed gate without requests lets a page of thirty reads through an hour later, as if it had never closed', async () => {
    const { sent, ask } = await closedFor('60');
    await vi.advanceTimersByTimeAsync(3_600_000);
    const page = Array.from({ length: 30 }, (_, index) => ask({ name: `caller-${index % 10}` }));
    expect(sent).toHaveLength(11);
    for (let i = 1; i < 31; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(await Promise.all(page.map(({ result }) => result))).toEqual(Array(30).fill(200));
  });

  it('a gate that has opened again learns from the next 429 as from the first', async () => {
    const { gate, sent, ask } = await closedFor('1');
    await vi.advanceTimersByTimeAsync(120_000);
    expect(gate.snapshot().state).toBe('open');
    for (let i = 0; i < 31; i++) ask();
    for (let i = 1; i < 31; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    sent[31]?.answer(429);
    await flush();
    expect(gate.snapshot()).toMatchObject({ state: 'closed', refusals: 2 });
    await vi.advanceTimersByTimeAsync(1000);
    expect(gate.snapshot()).toMatchObject({ state: 'half-open', attemptsPerSecond: 30 });
  });

  it('a limit is not forgotten while the stated time lasts, even after the gate has reopened', async () => {
    const { gate, sent, ask } = gated({ maxClosedMs: 60_000 });
    ask();
    sent[0]?.answer(429, { 'retry-after': '3600' });
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(gate.snapshot().state).toBe('half-open');
    await vi.advanceTimersByTimeAsync(60_001);
    expect(gate.snapshot().state).toBe('open');
  });
});

describe('one stray 429 at a gateway that is hardly used', () => {
  it.each([
    ['5 s', 5000, undefined],
    ['30 s', 30_000, undefined],
    ['5 s', 5000, '1'],
    ['55 s', 55_000, '1'],
  ])(
    'a stray 429 at a gateway that is hardly used, %s before, lets a page of thirty reads through within a second',
    async (_, afterMs, retryAfter) => {
      let isStray = false;
      const gate = paceAttempts(options);
      const handler = gate.layer(async () => {
        const answer = isStray
          ? answerOf(429, retryAfter ? { 'retry-after': retryAfter } : {})
          : answerOf(200);
        isStray = false;
        await new Promise((resolve) => setTimeout(resolve, 6));
        return answer;
      });
      const ask = () => handler(requestWith(contextFor()), newTrace());
      for (let i = 0; i < 20; i++) {
        isStray = i === 19;
        void ask();
        await vi.advanceTimersByTimeAsync(2000);
      }
      await vi.advanceTimersByTimeAsync(afterMs - 2000);
      expect(gate.snapshot().state).toBe('half-open');
      const page = Array.from({ length: 30 }, ask);
      await vi.advanceTimersByTimeAsync(1000);
      expect(gate.snapshot()).toMatchObject({ waiting: 0, inFlight: 0 });
      expect((await Promise.all(page)).map(({ status }) => status)).toEqual(Array(30).fill(200));
    },
  );
});

describe('a gate that opens again', () => {
  it('the gate opens after a minute without a 429 in which no request waits, and meets the upstream anew', async () => {
    const { gate, sent, ask } = gated();
    // Twenty answers while the window is full: it has grown.
    for (let i = 0; i < 40; i++) ask();
    for (let i = 0; i < 40; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(gate.snapshot().window).toBeGreaterThan(10);
    ask();
    sent.at(-1)?.answer(429, { 'retry-after': '1' });
    await flush();
    ask();
    await vi.advanceTimersByTimeAsync(1000);
    sent.at(-1)?.answer(200);
    await flush();
    expect(gate.snapshot().state).toBe('paced');
    await vi.advanceTimersByTimeAsync(59_000);
    expect(gate.snapshot().state).toBe('paced');
    await vi.advanceTimersByTimeAsync(1500);
    expect(gate.snapshot()).toMatchObject({ state: 'open', window: 10, attemptsPerSecond: null });
  });
});

describe('an upstream met for the first time', () => {
  it('an upstream met for the first time gets ten attempts, and with each further success one more', async () => {
    const { sent, ask, gate } = gated();
    for (let i = 0; i < 100; i++) ask({ name: `caller-${i % 10}` });
    expect(sent).toHaveLength(10);
    for (let i = 0; i < 10; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(sent).toHaveLength(20);
    for (let i = 10; i < 20; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(sent).toHaveLength(40);
    expect(gate.snapshot()).toMatchObject({ state: 'open', window: 20, inFlight: 20, waiting: 60 });
  });

  it('an open gate costs a request neither a promise nor a timer', () => {
    const gate = paceAttempts(options);
    const answer = answerOf(200);
    const context = contextFor();
    const handler = gate.layer(() => answer);
    expect(handler(requestWith(context), newTrace())).toBe(answer);
    expect(vi.getTimerCount()).toBe(0);
    expect(context.watchers).toBe(0);
    expect(gate.snapshot()).toMatchObject({ inFlight: 0, waiting: 0, attempts: 1 });
  });

  it('an open gate calls the upstream in the same turn of the event loop', () => {
    const { sent, ask } = gated();
    ask();
    expect(sent).toHaveLength(1);
  });
});

describe('turns', () => {
  it('turns go from caller to caller, not in order of arrival', async () => {
    const { sent, ask } = gated({ initialWindow: 1, maxInFlight: 1 });
    for (let i = 0; i < 20; i++) ask({ name: 'greedy' });
    ask({ name: 'polite' });
    for (let i = 0; i < 3; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(sent.slice(0, 4).map(({ name }) => name)).toContain('polite');
  });

  it('turns of background refreshes come after those of all callers, and move up when a caller joins', async () => {
    const { sent, ask } = gated({ initialWindow: 1, maxInFlight: 1 });
    ask({ name: 'a' });
    const refresh = ask({ name: 'refresh', background: true });
    const joined = ask({ name: 'joined', background: true });
    for (let i = 0; i < 3; i++) ask({ name: 'b' });
    joined.context.change({ flow: { name: 'joined', background: false } });
    for (let i = 0; i < 5; i++) {
      sent[i]?.answer(200);
      await flush();
    }
    expect(sent.map(({ name }) => name).indexOf('joined')).toBeLessThan(4);
    expect(sent.at(-1)?.name).toBe('refresh');
    expect(refresh.context.watchers).toBe(0);
  });

  it('the turn of a caller that leaves goes to another', async () => {
    const { sent, ask, gate } = gated({ initialWindow: 1, maxInFlight: 1 });
    ask({ name: 'a' });
    const leaving = ask({ name: 'leaving' });
    ask({ name: 'b' });
    const reason = new Error('left');
    leaving.context.end(reason);
    expect(await leaving.result).toBe(reason);
    expect(gate.snapshot().waiting).toBe(1);
    sent[0]?.answer(200);
    await flush();
    expect(sent.map(({ name }) => name)).toEqual(['a', 'b']);
    expect(leaving.context.watchers).toBe(0);
  });
});

describe('a deadline', () => {
  it('a request whose deadline is before the gate opens is refused at once, with the time it opens', async () => {
    const { sent, ask } = gated();
    ask();
    sent[0]?.answer(429, { 'retry-after': '40' });
    await flush();
    const refused = await ask().result;
    expect(refused).toMatchObject({ code: 'upstream-rate-limited', retryAfterMs: 40_000 });
    // It is told at once, so neither its reason nor its help says that anything was waited for.
    expect(refused).toMatchObject({
      message: expect.stringMatching(/would come after its time \(REQUEST_TIMEOUT\)$/),
    });
    expect(problems['upstream-rate-limited'].help).not.toMatch(/has waited/);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a queued request whose deadline is before the gate opens is refused as soon as it closes', async () => {
    const { sent, ask } = gated({ initialWindow: 1 });
    ask();
    const waiting = ask();
    sent[0]?.answer(429, { 'retry-after': '30' });
    expect(await waiting.result).toMatchObject({ code: 'upstream-rate-limited', retryAfterMs: 30_000 });
  });

  it('a deadline ends the wait when it comes, and is extended by a caller that joins', async () => {
    const { ask } = gated({ initialWindow: 1 });
    ask();
    const waiting = ask({}, 1000);
    const extended = ask({}, 1000);
    extended.context.change({ deadlineMs: performance.now() + 5000 });
    let isSettled = false;
    void extended.result.then(() => {
      isSettled = true;
    });
    await vi.advanceTimersByTimeAsync(1000);
    expect(await waiting.result).toMatchObject({ code: 'upstream-rate-limited' });
    expect(isSettled).toBe(false);
    await vi.advanceTimersByTimeAsync(4000);
    expect(await extended.result).toMatchObject({ code: 'upstream-rate-limited' });
  });
});

describe('the queue', () => {
  it('the queue is bounded for each caller', async () => {
    const { ask } = gated({ initialWindow: 1, maxWaitingPerCaller: 2 });
    ask();
    ask();
    ask();
    expect(await ask().result).toMatchObject({ code: 'overloaded', status: 503 });
  });

  it('what waits is shown for each caller: its requests, the longest wait among them, and its refreshes', async () => {
    const { ask, gate } = gated({ initialWindow: 1 });
    ask();
    ask({ name: 'a' });
    await vi.advanceTimersByTimeAsync(10);
    ask({ name: 'b', background: true });
    ask({ name: 'a' });
    await vi.advanceTimersByTimeAsync(5);
    expect(gate.snapshot().callers.toSorted((one, other) => (one.name < other.name ? -1 : 1))).toEqual([
      { name: 'a', waiting: 2, oldestWaitSeconds: 0.015, refreshes: 0 },
      { name: 'b', waiting: 0, oldestWaitSeconds: 0, refreshes: 1 },
    ]);
  });

  it('the queue is bounded in total: a caller with many requests makes room for one with few', async () => {
    const { ask, gate } = gated({ initialWindow: 1, maxWaiting: 3 });
    ask();
    const greedy = [ask({ name: 'greedy' }), ask({ name: 'greedy' }), ask({ name: 'greedy' })];
    const polite = ask({ name: 'polite' });
    expect(await greedy[2]?.result).toMatchObject({ code: 'overloaded' });
    expect(await ask({ name: 'greedy' }).result).toMatchObject({ code: 'overloaded' });
    expect(gate.snapshot().callers).toMatchObject([
      { name: 'greedy', waiting: 2 },
      { name: 'polite', waiting: 1 },
    ]);
    expect(polite.trace.gate).toBeUndefined();
  });

  it('a queue of five thousand is answered to the last request when every attempt fails at once', async () => {
    const gate = paceAttempts({ ...options, maxWaitingPerCaller: 5000 });
    let isRefusing = true;
    const handler = gate.layer(() => {
      if (isRefusing) return answerOf(429);
      throw new GatewayError('upstream-key-missing', { retryAfterMs: 1000 });
    });
    await handler(requestWith(contextFor()), newTrace());
    isRefusing = false;
    const codes = Array.from({ length: 5000 }, async () => {
      try {
        return await handler(requestWith(contextFor()), newTrace());
      } catch (error) {
        return (error as GatewayError).code ?? String(error);
      }
    });
    await vi.advanceTimersByTimeAsync(1000);
    expect(new Set(await Promise.all(codes))).toEqual(new Set(['upstream-key-missing']));
    expect(gate.snapshot()).toMatchObject({ inFlight: 0, waiting: 0 });
  });

  it('the queue is rejected as a whole when the gateway stops', async () => {
    const { ask, gate } = gated({ initialWindow: 1 });
    ask();
    const waiting = ask();
    gate.close();
    expect(await waiting.result).toMatchObject({ code: 'shutting-down' });
    expect(await ask().result).toMatchObject({ code: 'shutting-down' });
  });
});

describe('callers at a limit of so many per window', () => {
  it('callers at a limit in fixed windows are served window after window, and a lone request afterwards is as well', async () => {
    const startMs = performance.now();
    const gate = paceAttempts(options);
    let isLimited = true;
    let windowEndMs = 7000;
    let used = 0;
    const handler = retryFailures({ limit: 4, baseMs: 500, capMs: 8000, isGated: false })(
      gate.layer(async () => {
        const nowMs = performance.now() - startMs;
        if (nowMs >= windowEndMs) {
          windowEndMs += 10_000 * (1 + Math.floor((nowMs - windowEndMs) / 10_000));
          used = 0;
        }
        const isThrottled = isLimited && used++ >= 100;
        const waitSeconds = Math.ceil((windowEndMs - nowMs) / 1000);
        await new Promise((resolve) => setTimeout(resolve, 6));
        return isThrottled ? answerOf(429, { 'retry-after': `${waitSeconds}` }) : answerOf(200);
      }),
    );
    let served = 0;
    let isOver = false;
    const ask = async (): Promise<unknown> => {
      try {
        const { status } = await handler(requestWith(contextFor()), newTrace());
        if (status === 200) served++;
        return status;
      } catch (error) {
        return (error as GatewayError).retryAfterMs;
      }
    };
    const loop = async (): Promise<void> => {
      while (!isOver) if ((await ask()) !== 200) await new Promise((resolve) => setTimeout(resolve, 5000));
    };
    const loops = Array.from({ length: 10 }, loop);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(served).toBeGreaterThan(900);
    isOver = true;
    isLimited = false;
    await vi.advanceTimersByTimeAsync(30_000);
    await Promise.all(loops);
    const lone = ask();
    await vi.advanceTimersByTimeAsync(1000);
    expect(await lone).toBe(200);
  });
});

describe('the changes that the gate reports', () => {
  it('the gate reports each change of its state once', async () => {
    const { sent, ask, changes } = gated();
    ask();
    sent[0]?.answer(429, { 'retry-after': '1' });
    await flush();
    ask();
    await vi.advanceTimersByTimeAsync(1000);
    sent[1]?.answer(200);
    await flush();
    expect(changes.map(({ from, to }) => `${from} ${to}`)).toEqual([
      'open closed',
      'closed half-open',
      'half-open paced',
    ]);
    expect(changes[0]).toMatchObject({ closedForSeconds: 1, statedWaitSeconds: 1 });
  });
});
