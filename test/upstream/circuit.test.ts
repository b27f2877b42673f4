import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { breakCircuit, type CircuitChange } from '../../src/upstream/circuit.ts';
import { after } from '../../src/upstream/circuit-policy.ts';
import type { Answer } from '../../src/upstream/exchange.ts';
import { paceAttempts } from '../../src/upstream/gate.ts';
import { seeded } from './gate-simulation.ts';
import { answerOf, claimFor, newTrace, requestWith } from './requests.ts';

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
  const handler = layer(async () => {
    attempts++;
    if (typeof step === 'number') return answerOf(step);
    throw step;
  });
  const ask = async (): Promise<unknown> => {
    try {
      return ((await handler(requestWith(claimFor()), newTrace())) as Answer).status;
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
    snapshot,
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

  it('is asked by everybody again once a probe is answered', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(3);
    subject.upstreamDoes(200);
    await subject.askFor(5);
    expect(subject.snapshot()).toEqual({ state: 'closed', failuresInARow: 0, probeInMs: 0 });
    expect(subject.changes.map(({ to }) => to)).toEqual(['open', 'closed']);
    expect(await subject.ask()).toBe(200);
  });

  it('is not taken for well or worse by attempts sent before the circuit opened', () => {
    const rules = { openAfter: 10, quietMs: 1000, firstProbeMs: 1000, longestProbeMs: 30_000 };
    const open = { kind: 'open', probeAtMs: 5000, probeFailures: 2, isProbing: true } as const;
    for (const sign of ['alive', 'failing', 'silent'] as const) {
      expect(after(open, sign, false, 4000, rules)).toBe(open);
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
