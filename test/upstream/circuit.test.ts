import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Answer } from '../../src/exchange.ts';
import { paceAttempts } from '../../src/gate/gate.ts';
import { breakCircuit, type CircuitChange } from '../../src/upstream/circuit.ts';
import { after } from '../../src/upstream/circuit-policy.ts';
import { answerOf, claimFor, newTrace, requestWith } from '../support/requests.ts';
import { seeded } from '../support/virtual-clock.ts';

type Step = number | GatewayError | Error;

const unreachable = () => new GatewayError('upstream-unreachable', { proxyError: 'connection_refused' });

function circuit(initial: Step) {
  let step = initial;
  let attempts = 0;
  const changes: CircuitChange[] = [];
  const opened: (() => GatewayError)[] = [];
  const { layer, snapshot } = breakCircuit({
    onChange: (change) => changes.push(change),
    onOpen: (failure) => opened.push(failure),
  });
  const steps = new Map<string, Step>();
  const asked: string[] = [];
  const handler = layer(async ({ operation }) => {
    attempts++;
    asked.push(operation);
    const does = steps.get(operation) ?? step;
    if (typeof does === 'number') return answerOf(does);
    throw does;
  });
  const ask = async (operation = 'list-accounts'): Promise<unknown> => {
    try {
      const request = { ...requestWith(claimFor()), operation };
      return ((await handler(request, newTrace())) as Answer).status;
    } catch (error) {
      return error;
    }
  };
  /** Asks every 200 ms. */
  const askFor = async (seconds: number): Promise<unknown> => {
    let last: unknown;
    for (let i = 0; i < seconds * 5; i++) {
      last = await ask();
      await vi.advanceTimersByTimeAsync(200);
    }
    return last;
  };
  return {
    ask,
    askFor,
    changes,
    opened,
    asked,
    snapshot,
    operationDoes: (operation: string, next: Step) => {
      steps.set(operation, next);
    },
    upstreamDoes: (next: Step) => {
      step = next;
    },
    get attempts() {
      return attempts;
    },
  };
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

describe('an upstream that is down', () => {
  it.each([
    ['unreachable', unreachable(), { code: 'upstream-unreachable', proxyError: 'connection_refused' }],
    ['silent', new GatewayError('upstream-timeout'), { code: 'upstream-timeout' }],
    ['answering 503', 503, { code: 'upstream-unreachable', receivedStatus: 503 }],
  ])(
    'because it is %s is not asked for everybody: its last failure is told at once',
    async (_, step, problem) => {
      const subject = circuit(step);
      await subject.askFor(2.2);
      expect(subject.snapshot().state).toBe('open');
      const attempts = subject.attempts;
      const told = (await subject.ask()) as GatewayError;
      expect(told).toMatchObject(problem);
      expect(told.retryAfterMs).toBeGreaterThanOrEqual(1000);
      expect(subject.attempts).toBe(attempts);
      expect(subject.opened).toHaveLength(1);
    },
  );

  it('is asked again with one request at growing intervals', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(2);
    const before = subject.attempts;
    await subject.askFor(16);
    // Probes after 1, 2, 4 and 8 s.
    expect(subject.attempts - before).toBe(4);
  });

  it('is asked again at least every 30 s', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(70);
    const before = subject.attempts;
    await subject.askFor(300);
    expect(subject.attempts - before).toBeGreaterThanOrEqual(9);
    expect(subject.attempts - before).toBeLessThanOrEqual(10);
    expect(subject.snapshot().probeInMs).toBeLessThanOrEqual(30_000);
  });

  it('is asked by everybody again once a probe is answered', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(3);
    subject.upstreamDoes(200);
    await subject.askFor(5);
    expect(subject.snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0, probeInMs: 0 });
    expect(subject.changes.map(({ to }) => to)).toEqual(['open', 'closed']);
    expect(await subject.ask()).toBe(200);
  });

  it('is not taken for well or worse by attempts sent before the circuit opened', () => {
    const rules = { openAfter: 10, quietMs: 1000, firstProbeMs: 1000, longestProbeMs: 30_000 };
    const failed = new Set(['reads']);
    const open = { kind: 'open', probeAtMs: 5000, probeFailures: 2, isProbing: true, failed } as const;
    for (const sign of ['alive', 'failing', 'silent'] as const) {
      expect(after(open, { sign, operation: 'reads', isProbe: false }, 4000, rules)).toBe(open);
    }
  });

  it('counts a 429 as a sign of life', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(3);
    subject.upstreamDoes(429);
    await subject.askFor(5);
    expect(subject.snapshot().state).toBe('closed');
  });

  it('gets another probe at once when the first ended without news: its caller has left', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(2);
    subject.upstreamDoes(new Error('the caller has left'));
    await vi.advanceTimersByTimeAsync(1000);
    await subject.ask();
    expect(subject.snapshot().state).toBe('open');
    subject.upstreamDoes(200);
    expect(await subject.ask()).toBe(200);
  });
});

describe('one operation that fails', () => {
  /** The operation is asked every 50 ms, another every 2 s. */
  const askBoth = async (does: Step) => {
    const subject = circuit(200);
    subject.operationDoes('broken', does);
    const healthy: unknown[] = [];
    const broken: unknown[] = [];
    for (let i = 0; i < 24 * 20; i++) {
      broken.push(await subject.ask('broken'));
      if (i % 40 === 39) healthy.push(await subject.ask('healthy'));
      await vi.advanceTimersByTimeAsync(50);
    }
    return { subject, healthy, broken };
  };

  it.each<[string, Step]>([
    ['500', 500],
    ['504', 504],
    ['no answer in time', new GatewayError('upstream-timeout', { proxyError: 'http_response_timeout' })],
  ])('with %s leaves the others alone', async (_, does) => {
    expect((await askBoth(does)).healthy).toEqual(Array(12).fill(200));
  });

  it('with a 500 is answered at once, asked again at growing intervals, and opens nothing for others', async () => {
    const { subject, broken } = await askBoth(500);
    // As it came, as long as the circuit is closed for it.
    expect(broken.slice(0, 20)).toEqual(Array(20).fill(500));
    expect(broken[25]).toMatchObject({ code: 'upstream-unreachable', receivedStatus: 500 });
    expect(subject.asked.filter((name) => name === 'broken').length).toBeLessThan(30);
    expect(subject.snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0 });
    expect(subject.snapshot().operations).toEqual([
      {
        operation: 'broken',
        state: 'open',
        failuresInARow: expect.any(Number),
        probeInMs: expect.any(Number),
      },
      { operation: 'healthy', state: 'closed', failuresInARow: 0, probeInMs: 0 },
    ]);
    expect(subject.opened).toEqual([]);
    expect(subject.changes).toEqual([{ to: 'open', operation: 'broken', lastFailure: 500 }]);
    subject.operationDoes('broken', 200);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(await subject.ask('broken')).toBe(200);
    expect(await subject.ask('broken')).toBe(200);
    expect(subject.changes.at(-1)).toMatchObject({ to: 'closed', operation: 'broken' });
  });
});

describe('an upstream that answers 500 to all that is asked', () => {
  it('counts as down, though each operation is asked again by itself', async () => {
    const subject = circuit(500);
    for (let i = 0; i < 30; i++) {
      await subject.ask('one');
      await subject.ask('other');
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(subject.snapshot()).toMatchObject({ state: 'open' });
    expect(subject.snapshot().probeInMs).toBeGreaterThan(0);
    subject.operationDoes('other', 200);
    await vi.advanceTimersByTimeAsync(8000);
    expect(await subject.ask('other')).toBe(200);
    expect(subject.snapshot().state).toBe('closed');
  });
});

describe('an operation that has not failed', () => {
  it('is the probe of an upstream that counts as down, at once, and one request of it at a time', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(2.2);
    expect(subject.snapshot().state).toBe('open');
    subject.asked.length = 0;
    const both = await Promise.all([subject.ask('other'), subject.ask('other')]);
    expect(both).toEqual([unreachable(), expect.objectContaining({ code: 'upstream-unreachable' })]);
    // It has failed now, and waits like the others.
    await subject.ask('other');
    expect(subject.asked).toEqual(['other']);
  });
});

describe('an upstream that fails at times', () => {
  it('is not down while a third of its answers fail', async () => {
    const subject = circuit(200);
    const random = seeded(7);
    for (let i = 0; i < 20_000; i++) {
      subject.upstreamDoes(random() < 1 / 3 ? 500 : 200);
      await subject.ask();
      await vi.advanceTimersByTimeAsync(5);
    }
    expect(subject.changes).toEqual([]);
  });

  it('is not down because many attempts break off at the same moment', async () => {
    const subject = circuit(unreachable());
    await Promise.all(Array.from({ length: 64 }, () => subject.ask()));
    expect(subject.snapshot().state).toBe('closed');
  });

  it('is not down because of our own refusals', async () => {
    const subject = circuit(new GatewayError('upstream-rate-limited', { retryAfterMs: 1000 }));
    await subject.askFor(10);
    expect(subject.snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0 });
  });
});

describe('a circuit before a gate', () => {
  it('sends home who waits for a turn when it opens', async () => {
    const gate = paceAttempts({
      maxClosedMs: 300_000,
      baseMs: 500,
      capMs: 8000,
      initialWindow: 1,
      random: () => 0,
    });
    const { layer } = breakCircuit({ onOpen: gate.dismiss });
    const handler = layer(
      gate.layer(async () => {
        await new Promise((resolve) => setTimeout(resolve, 200));
        throw unreachable();
      }),
    );
    const results = Array.from({ length: 50 }, async () => {
      try {
        return await handler(requestWith(claimFor()), newTrace());
      } catch (error) {
        return (error as GatewayError).retryAfterMs;
      }
    });
    await vi.advanceTimersByTimeAsync(3000);
    const waits = await Promise.all(results);
    // The tenth failure's place at the gate is taken before the circuit hears of it: eleven have been sent.
    expect(waits.filter((wait) => wait === undefined)).toHaveLength(11);
    expect(waits.filter((wait) => wait === 1000)).toHaveLength(39);
  });
});
