import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Answer } from '../../src/exchange/exchange.ts';
import type { RequestContext } from '../../src/exchange/request-context.ts';
import { paceAttempts } from '../../src/gate/gate.ts';
import { Circuit, type CircuitChange } from '../../src/upstream/circuit.ts';
import { answerOf, contextFor, newTrace, requestWith } from '../support/requests.ts';
import { seeded } from '../support/virtual-clock.ts';

type Step = number | GatewayError | Error;

const hanging = () => new GatewayError('upstream-timeout', { proxyError: 'http_response_timeout' });
const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
const unreachable = () =>
  new GatewayError('upstream-unreachable', { proxyError: 'connection_refused', cause: refused });

function circuit(initial: Step) {
  let step = initial;
  let attempts = 0;
  const changes: CircuitChange[] = [];
  const made = new Circuit({ onChange: (change) => changes.push(change) });
  const { layer, snapshot } = made;
  const steps = new Map<string, Step>();
  const asked: string[] = [];
  const handler = layer(async ({ operation, context }, trace) => {
    const { name: caller } = context.flow;
    attempts++;
    trace.attempts++;
    asked.push(operation);
    const does = steps.get(`${operation} ${caller}`) ?? steps.get(operation) ?? step;
    if (typeof does === 'number') return answerOf(does);
    if (does instanceof GatewayError && does.proxyError === 'http_response_timeout') {
      await new Promise((resolve) => setTimeout(resolve, 10_000));
    }
    throw does;
  });
  const ask = async (operation = 'list-accounts', caller = 'someone'): Promise<unknown> => {
    try {
      const request = { ...requestWith(contextFor({ name: caller })), operation };
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
    get remembered() {
      return made.remembered;
    },
  };
}

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

describe('an upstream that is down', () => {
  it.each([
    [
      'unreachable',
      unreachable(),
      { code: 'upstream-unreachable', proxyError: 'connection_refused', receivedStatus: undefined },
      'ECONNREFUSED',
    ],
    ['silent', new GatewayError('upstream-timeout'), { code: 'upstream-timeout' }, 'upstream-timeout'],
    ['answering 503', 503, { code: 'upstream-unreachable', receivedStatus: 503 }, '503'],
  ])(
    'an upstream that is %s is not asked again for each request: its last failure is told at once',
    async (_, step, problem, lastFailure) => {
      const subject = circuit(step);
      await subject.askFor(2.2);
      const attempts = subject.attempts;
      expect(subject.snapshot()).toMatchObject({ state: 'open', failuresInARow: attempts, lastFailure });
      const told = (await subject.ask()) as GatewayError;
      expect(told).toMatchObject(problem);
      expect(told.retryAfterMs).toBeGreaterThanOrEqual(1000);
      expect(subject.attempts).toBe(attempts);
    },
  );

  it('is asked again with one request at growing intervals', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(2);
    const before = subject.attempts;
    await subject.askFor(16);
    // Probes after 1, 2, 4 and 8 s.
    expect(subject.attempts - before).toBe(4);
    expect(((await subject.ask()) as GatewayError).retryAfterMs).toBeGreaterThan(8_000);
  });

  it('is asked again at least every 30 s', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(70);
    const before = subject.attempts;
    await subject.askFor(300);
    expect(subject.attempts - before).toBeGreaterThanOrEqual(9);
    expect(subject.attempts - before).toBeLessThanOrEqual(10);
    expect(subject.snapshot().probeInSeconds).toBeLessThanOrEqual(30);
  });

  it('an upstream that was down is asked for all requests again once a trial is answered', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(3);
    subject.upstreamDoes(200);
    await subject.askFor(5);
    expect(subject.snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0, probeInSeconds: 0 });
    expect(subject.changes).toEqual(
      ['open', 'closed'].map((to) => ({ to, lastFailure: 'upstream-unreachable' })),
    );
    expect(await subject.ask()).toBe(200);
  });

  it.each([200, unreachable()])(
    'an open circuit is not changed by attempts sent before it opened that end with %s',
    async (end) => {
      const { layer, snapshot } = new Circuit();
      const early = Promise.withResolvers<Answer>();
      let onAttempt = () => early.promise;
      const handler = layer((_, trace) => {
        trace.attempts++;
        return onAttempt();
      });
      const ask = () =>
        Promise.resolve(handler(requestWith(contextFor()), newTrace())).catch((error) => error);
      const late = ask();
      onAttempt = () => Promise.reject(unreachable());
      for (let i = 0; i < 20; i++) {
        await ask();
        await vi.advanceTimersByTimeAsync(150);
      }
      const before = snapshot();
      expect(before.state).toBe('open');
      await vi.advanceTimersByTimeAsync(1_000 * before.probeInSeconds + 1);
      const trial = Promise.withResolvers<Answer>();
      onAttempt = () => trial.promise;
      const tried = ask();
      if (typeof end === 'number') early.resolve(answerOf(end));
      else early.reject(end);
      await late;
      expect(snapshot()).toEqual({ ...before, probeInSeconds: 0, operations: expect.anything() });
      // The trial goes on, and no other begins.
      expect(await ask()).toMatchObject({ code: 'upstream-unreachable', retryAfterMs: 1_000 });
      trial.resolve(answerOf(200));
      expect(await tried).toMatchObject({ status: 200 });
    },
  );

  it('an open circuit is closed by a 429, as a sign of life', async () => {
    const subject = circuit(unreachable());
    await subject.askFor(3);
    subject.upstreamDoes(429);
    await subject.askFor(5);
    expect(subject.snapshot().state).toBe('closed');
  });

  it.each([
    new Error('its caller has left'),
    new GatewayError('upstream-rate-limited', { retryAfterMs: 1_000, reason: 'its turn came too late' }),
  ])('gets another trial at once when the first ended without an answer: %s', async (end) => {
    const subject = circuit(unreachable());
    await subject.askFor(2);
    subject.upstreamDoes(end);
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
    ['no answer in time', new GatewayError('upstream-timeout')],
  ])('an operation that fails with %s leaves the others alone', async (_, does) => {
    expect((await askBoth(does)).healthy).toEqual(Array(12).fill(200));
  });

  it('an operation that fails with a 500 is answered at once, asked again at growing intervals, and opens nothing for others', async () => {
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
        failuresInARow: subject.asked.filter((name) => name === 'broken').length,
        probeInSeconds: expect.any(Number),
        lastFailure: '500',
      },
      { operation: 'healthy', state: 'closed', failuresInARow: 0, probeInSeconds: 0, lastFailure: null },
    ]);
    expect(subject.changes).toEqual([
      { to: 'open', operation: 'broken', caller: 'someone', lastFailure: 500 },
    ]);
    subject.operationDoes('broken', 200);
    await vi.advanceTimersByTimeAsync(30_000);
    expect(await subject.ask('broken')).toBe(200);
    expect(await subject.ask('broken')).toBe(200);
    expect(subject.changes.at(-1)).toMatchObject({ to: 'closed', operation: 'broken', lastFailure: 500 });
  });
});

describe('an upstream that answers 500 to all that is asked', () => {
  it('an upstream that answers 500 to all operations counts as down, though each operation is asked again by itself', async () => {
    const subject = circuit(500);
    for (let i = 0; i < 30; i++) {
      await subject.ask('one');
      await subject.ask('other');
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(subject.snapshot().state).toBe('open');
    expect(subject.snapshot().failuresInARow).toBeGreaterThanOrEqual(10);
    expect(subject.snapshot().probeInSeconds).toBeGreaterThan(0);
    subject.operationDoes('other', 200);
    await vi.advanceTimersByTimeAsync(8000);
    expect(await subject.ask('other')).toBe(200);
    expect(subject.snapshot().state).toBe('closed');
  });
});

describe('one caller whose reads get no answer', () => {
  /** One caller sends 24 reads at once, again and again; each hangs for 10 s. */
  const askSlowly = async (operations: readonly string[]) => {
    const subject = circuit(200);
    subject.operationDoes('one slow', hanging());
    subject.operationDoes('other slow', hanging());
    for (let round = 0; round < 4; round++) {
      for (let i = 0; i < 24; i++) void subject.ask(operations[i % operations.length], 'slow');
      await vi.advanceTimersByTimeAsync(11_000);
    }
    return subject;
  };

  it.each([
    ['one operation', ['one']],
    ['all operations', ['one', 'other']],
  ])(
    'a caller whose reads get no answer in %s is held up alone: other callers are served in all, many at once',
    async (_, operations) => {
      const subject = await askSlowly(operations);
      expect(subject.changes.map(({ to, operation }) => [to, operation])).toEqual(
        operations.map((operation) => ['open', operation]),
      );
      // The first may be the trial.
      void subject.ask('one', 'slow');
      expect(await subject.ask('one', 'slow')).toMatchObject({
        code: 'upstream-timeout',
        retryAfterMs: expect.any(Number),
      });
      const others = ['one', 'one', 'one', 'other', 'other'].map((operation) =>
        subject.ask(operation, 'quick'),
      );
      expect(await Promise.all(others)).toEqual([200, 200, 200, 200, 200]);
    },
  );

  it('a caller whose reads get no answer is held up although other callers are answered, and the upstream is not shown as down', async () => {
    const subject = circuit(504);
    for (const operation of ['one', 'other']) subject.operationDoes(`${operation} quick`, 200);
    for (let i = 0; i < 30; i++) {
      for (const operation of ['one', 'other']) {
        await subject.ask(operation, 'slow');
        expect(await subject.ask(operation, 'quick')).toBe(200);
      }
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(await subject.ask('one', 'slow')).toMatchObject({ receivedStatus: 504 });
    expect(subject.changes).toEqual(
      ['one', 'other'].map((operation) => ({ to: 'open', operation, caller: 'slow', lastFailure: 504 })),
    );
    const closed = { state: 'closed', failuresInARow: 0, probeInSeconds: 0, lastFailure: null };
    expect(subject.snapshot()).toEqual({
      ...closed,
      operations: ['one', 'other'].map((operation) => ({ operation, ...closed })),
    });
  });

  it('one caller does not open the circuit of the whole upstream, whichever operations it asks for', async () => {
    const subject = circuit(hanging());
    for (let i = 0; i < 100; i++) {
      void subject.ask(`operation-${i % 5}`, 'slow');
      await vi.advanceTimersByTimeAsync(200);
    }
    expect(subject.changes.filter(({ operation }) => operation === undefined)).toEqual([]);
  });

  it('a caller whose requests wait for a turn when its circuit opens is refused at once, and other callers go on waiting', async () => {
    const gate = paceAttempts({
      maxClosedMs: 300_000,
      baseMs: 500,
      capMs: 8000,
      initialWindow: 1,
      random: () => 0,
    });
    const { layer, atTurn } = new Circuit();
    const gated: typeof layer = (next) => gate.layer(atTurn(next));
    const handler = layer(
      gated(async ({ context }, trace) => {
        trace.attempts++;
        await new Promise((resolve) => setTimeout(resolve, 200));
        return answerOf(context.flow.name === 'slow' ? 504 : 200);
      }),
    );
    const outcomes = (name: string, count: number) =>
      Array.from({ length: count }, async () => {
        try {
          return ((await handler(requestWith(contextFor({ name })), newTrace())) as Answer).status;
        } catch (error) {
          return (error as GatewayError).retryAfterMs;
        }
      });
    const slow = outcomes('slow', 50);
    await vi.advanceTimersByTimeAsync(1900);
    const quick = outcomes('quick', 3);
    await vi.advanceTimersByTimeAsync(8000);
    expect((await Promise.all(slow)).filter((outcome) => outcome === 1000).length).toBeGreaterThanOrEqual(38);
    expect(await Promise.all(quick)).toEqual([200, 200, 200]);
  });
});

describe('different callers and operations that get no answer', () => {
  it('failures of different callers and operations open the circuit of the whole upstream, and those of one caller or one operation do not', async () => {
    const failing = async (callers: readonly string[], operations: readonly string[]) => {
      const subject = circuit(503);
      for (let i = 0; i < 24; i++) {
        await subject.ask(operations[i % operations.length], callers[(i >> 1) % callers.length]);
        await vi.advanceTimersByTimeAsync(100);
      }
      return subject.changes.some(({ to, operation }) => to === 'open' && operation === undefined);
    };
    expect(await failing(['a', 'b'], ['one', 'other'])).toBe(true);
    expect(await failing(['a'], ['one', 'other'])).toBe(false);
    expect(await failing(['a', 'b'], ['one'])).toBe(false);
  });

  it('callers do not share their trial: while the read of one hangs, that of another closes the circuit', async () => {
    const subject = circuit(504);
    for (let i = 0; i < 12; i++) {
      await subject.ask('reads', i % 2 === 0 ? 'slow' : 'quick');
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(await subject.ask('reads', 'quick')).toMatchObject({ receivedStatus: 504 });
    subject.operationDoes('reads slow', hanging());
    subject.operationDoes('reads quick', 200);
    await vi.advanceTimersByTimeAsync(1000);
    const slow = subject.ask('reads', 'slow');
    expect(await subject.ask('reads', 'slow')).toBeInstanceOf(GatewayError);
    expect(await subject.ask('reads', 'quick')).toBe(200);
    expect(subject.changes.map(({ to }) => to)).toEqual(['open', 'closed']);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await slow).toEqual(hanging());
  });

  it('callers have a trial each as soon as the trial of one has failed', async () => {
    const subject = circuit(504);
    for (let i = 0; i < 12; i++) {
      await subject.ask('reads', i % 2 === 0 ? 'slow' : 'quick');
      await vi.advanceTimersByTimeAsync(100);
    }
    subject.operationDoes('reads quick', 200);
    await vi.advanceTimersByTimeAsync(1000);
    expect(await subject.ask('reads', 'slow')).toBe(504);
    expect(await subject.ask('reads', 'slow')).toBeInstanceOf(GatewayError);
    expect(await subject.ask('reads', 'quick')).toBe(200);
  });
});

describe('an operation that has not failed', () => {
  it('is the trial of an upstream that counts as down, at once, and one request of it at a time', async () => {
    const subject = circuit(200);
    expect(subject.snapshot().state).toBe('closed');
    await subject.ask('other');
    subject.upstreamDoes(unreachable());
    await subject.askFor(2.2);
    expect(subject.snapshot().state).toBe('open');
    // Of those that have failed.
    expect(subject.snapshot().probeInSeconds).toBeGreaterThan(0);
    subject.asked.length = 0;
    const both = await Promise.all([subject.ask('other'), subject.ask('other')]);
    expect(both).toEqual([unreachable(), expect.objectContaining({ code: 'upstream-unreachable' })]);
    // It has failed now, and waits like the others.
    await subject.ask('other');
    expect(subject.asked).toEqual(['other']);
  });
});

describe('an upstream that fails at times', () => {
  it('an upstream is not down while a third of its answers fail', async () => {
    const subject = circuit(200);
    const random = seeded(7);
    for (let i = 0; i < 20_000; i++) {
      subject.upstreamDoes(random() < 1 / 3 ? 500 : 200);
      await subject.ask();
      await vi.advanceTimersByTimeAsync(5);
    }
    expect(subject.changes).toEqual([]);
  });

  it('an upstream is not down because many attempts break off at the same moment', async () => {
    const subject = circuit(unreachable());
    await Promise.all(Array.from({ length: 64 }, () => subject.ask()));
    expect(subject.snapshot().state).toBe('closed');
  });

  it('an upstream is not down because requests reach their deadline before they are sent', async () => {
    const { layer, snapshot } = new Circuit();
    const handler = layer(async () => {
      throw new GatewayError('upstream-timeout');
    });
    for (let i = 0; i < 30; i++) {
      await Promise.resolve(handler(requestWith(contextFor()), newTrace())).catch(() => {});
      await vi.advanceTimersByTimeAsync(200);
    }
    expect(snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0 });
  });

  it('an upstream is not down because of our own refusals', async () => {
    const subject = circuit(new GatewayError('upstream-rate-limited', { retryAfterMs: 1000 }));
    await subject.askFor(10);
    expect(subject.snapshot()).toMatchObject({ state: 'closed', failuresInARow: 0 });
  });
});

describe('the circuit before a gate', () => {
  it('a circuit refuses the requests that wait for a turn when it opens', async () => {
    const gate = paceAttempts({
      maxClosedMs: 300_000,
      baseMs: 500,
      capMs: 8000,
      initialWindow: 1,
      random: () => 0,
    });
    const { layer, atTurn } = new Circuit();
    const gated: typeof layer = (next) => gate.layer(atTurn(next));
    const handler = layer(
      gated(async (_, trace) => {
        trace.attempts++;
        await new Promise((resolve) => setTimeout(resolve, 200));
        throw unreachable();
      }),
    );
    const results = Array.from({ length: 50 }, async () => {
      try {
        return await handler(requestWith(contextFor()), newTrace());
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

  it('an exchange that waits for its turn is sent although the circuit opens for one caller, where another one waits for it as well', async () => {
    const { layer, atTurn } = new Circuit();
    const turn = Promise.withResolvers<void>();
    const gated: typeof layer = (next) => async (request, trace) => {
      if (request.query === '?waits') await turn.promise;
      return atTurn(next)(request, trace);
    };
    const handler = layer(
      gated(async ({ query }, trace) => {
        trace.attempts++;
        return answerOf(query === '?fails' ? 504 : 200);
      }),
    );
    const ask = async (context: RequestContext, query = '') => {
      try {
        return ((await handler({ ...requestWith(context), query }, newTrace())) as Answer).status;
      } catch (error) {
        return (error as GatewayError).retryAfterMs;
      }
    };
    const [alone, joined] = [contextFor({ name: 'a' }), contextFor({ name: 'a' })];
    const waiting = [ask(alone, '?waits'), ask(joined, '?waits')];
    for (let i = 0; i < 11; i++) {
      await ask(contextFor({ name: 'a' }), '?fails');
      await ask(contextFor({ name: 'b' }));
      await vi.advanceTimersByTimeAsync(200);
    }
    joined.join({ name: 'b' });
    turn.resolve();
    expect(await Promise.all(waiting)).toEqual([expect.any(Number), 200]);
  });

  it('a trial that waits for its turn is sent although its caller leaves and the exchange goes on for another caller', async () => {
    const { layer, atTurn, snapshot } = new Circuit();
    const turn = Promise.withResolvers<void>();
    let isDown = true;
    const gated: typeof layer = (next) => async (request, trace) => {
      if (!isDown) await turn.promise;
      return atTurn(next)(request, trace);
    };
    const handler = layer(
      gated(async (_, trace) => {
        trace.attempts++;
        if (isDown) throw unreachable();
        return answerOf(200);
      }),
    );
    for (let i = 0; i < 11; i++) {
      await Promise.resolve(handler(requestWith(contextFor({ name: 'a' })), newTrace())).catch(() => {});
      await vi.advanceTimersByTimeAsync(200);
    }
    expect(snapshot().state).toBe('open');
    await vi.advanceTimersByTimeAsync(1000);
    isDown = false;
    const context = contextFor({ name: 'a' });
    const trial = handler(requestWith(context), newTrace());
    context.change({ flow: { name: 'b' } });
    turn.resolve();
    expect(await trial).toMatchObject({ status: 200 });
    expect(snapshot().state).toBe('closed');
  });
});

it('a circuit remembers a bounded number of people, and those whose reads fail before all others', async () => {
  const upstream = circuit(200);
  upstream.operationDoes('list-accounts staff/sick', 503);
  for (let i = 0; i < 11; i++) {
    await upstream.ask('list-accounts', 'staff/sick');
    await vi.advanceTimersByTimeAsync(200);
  }
  const isRefused = async () => (await upstream.ask('list-accounts', 'staff/sick')) instanceof GatewayError;
  expect(await isRefused()).toBe(true);
  for (let person = 0; person < 5_000; person++) await upstream.ask('list-accounts', `staff/${person}`);
  expect(upstream.remembered).toBeLessThanOrEqual(1_000);
  expect(await isRefused()).toBe(true);
  // Where all fail, nothing but their number bounds them.
  for (let person = 0; person < 5_000; person++) {
    upstream.operationDoes(`list-accounts failing/${person}`, 500);
    await upstream.ask('list-accounts', `failing/${person}`);
  }
  expect(upstream.remembered).toBeLessThanOrEqual(1_000);
});
