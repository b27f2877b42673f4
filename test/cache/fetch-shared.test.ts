import { describe, expect, it } from 'vitest';
import { shareAnswers } from '../../src/cache/cache.ts';
import { askAtTurn } from '../../src/cache/fetch-shared.ts';
import type { LookOptions, Publication, SharedLook, SharedReads } from '../../src/cache/shared-reads.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import { compose, type Layer } from '../../src/exchange/layer.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { paceAttempts } from '../../src/gate/gate.ts';
import { Circuit } from '../../src/upstream/circuit.ts';
import { retryWithKey } from '../../src/upstream/credential.ts';
import { retryFailures } from '../../src/upstream/retry.ts';
import { LiveContext } from '../support/requests.ts';

const nothing: SharedLook = { stored: undefined, outcome: undefined, exchange: undefined, other: undefined };

function answer(ageMs: number, body: string, headers = {}): Answer {
  const receivedMs = performance.now() - ageMs;
  const receivedAt = Date.now() - ageMs;
  return { status: 200, headers, body, sentMs: receivedMs, receivedMs, receivedAt, generation: 1 };
}

function request(more: Partial<UpstreamRequest> = {}): UpstreamRequest {
  return {
    operation: 'list-accounts',
    path: '/analytics/accounts/',
    query: '',
    keyedHeaders: {},
    headers: {},
    ids: {},
    callerIds: undefined,
    cacheControl: undefined,
    pragma: undefined,
    context: new LiveContext({ name: 'a', weight: 1, background: false }, performance.now() + 25_000),
    ...more,
  };
}

/** A cache whose shared store gives these looks, one after another, and the last one for ever. */
function withShared(looks: readonly (SharedLook | undefined)[], inUse = true, gate?: Gate) {
  const asked: LookOptions[] = [];
  const published: (Publication | 'released')[] = [];
  const upstream: string[] = [];
  const ended = new Set<(exchangeId: string) => void>();
  let purged: (operation: string | undefined) => void = () => {};
  const mine: SharedLook = {
    ...nothing,
    exchange: {
      publish: (publication) => void published.push(publication),
      release: () => void published.push('released'),
    },
  };
  const shared: SharedReads = {
    inUse,
    async look(_request, options) {
      asked.push(options);
      const at = Math.min(asked.length, looks.length) - 1;
      return looks.length === 0 ? mine : looks[at];
    },
    wait: () => Promise.resolve(),
    watch(_request, onEnded) {
      ended.add(onEnded);
      return () => ended.delete(onEnded);
    },
    purge: () => {},
    onPurge(listener) {
      purged = listener;
    },
  };
  const cache = shareAnswers({
    ...{ ttlMs: 15_000, staleWhileRevalidateMs: 0, staleIfErrorMs: 0, refreshTimeoutMs: 1_000 },
    ...{ maxBytes: 1 << 20, maxEntryBytes: 1 << 18, generation: () => 1, shared },
  });
  const attempt = askAtTurn((own) => {
    upstream.push(own.cacheControl ?? 'plain');
    return Promise.resolve(answer(0, '"from the upstream"'));
  });
  const handle = cache.layer(gate === undefined ? attempt : gate(attempt));
  const traces: Trace[] = [];
  const ask = async (more: Partial<UpstreamRequest> = {}) => {
    const trace = new Trace(performance.now());
    traces.push(trace);
    return (await handle(request(more), trace)).body.toString();
  };
  const end = (exchangeId: string): void => {
    for (const onEnded of ended) onEnded(exchangeId);
  };
  return { traces, ask, asked, published, upstream, mine, end, purge: () => purged(undefined) };
}

type Gate = Layer<UpstreamRequest, Answer>;

/** A gate where requests wait for their turns, or until their contexts end. */
function closedGate() {
  const waiting: (() => void)[] = [];
  const gate: Gate = (next) => (own, trace) => {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    own.context.watch({ onEnd: reject });
    waiting.push(() => resolve((async () => await next(own, trace))()));
    return promise;
  };
  return { gate, waiting };
}

const oneTick = () => new Promise((resolve) => setImmediate(resolve));

describe('a flight that waits at the gate of a gateway that shares a store', () => {
  it('a flight that waits at the gate of a gateway that shares a store leaves its read to others meanwhile, and makes the exchange for all when its turn comes', async () => {
    const { gate, waiting } = closedGate();
    const { ask, asked, published, upstream } = withShared([], true, gate);
    const came = ask();
    await oneTick();
    expect([waiting.length, upstream.length, published]).toEqual([1, 0, ['released']]);
    waiting[0]?.();
    expect(await came).toBe('"from the upstream"');
    expect(asked.map(({ mayTake }) => mayTake)).toEqual([true, true]);
    expect(published).toMatchObject(['released', { kind: 'stored' }]);
  });

  it('a flight that waits at the gate of a gateway that shares a store sends nothing when its turn comes after that of another gateway', async () => {
    const { gate, waiting } = closedGate();
    const looks: SharedLook[] = [];
    const { ask, asked, mine, upstream } = withShared(looks, true, gate);
    const outcome = { kind: 'answered', answer: answer(0, '"theirs"'), forwardStatus: undefined } as const;
    looks.push(mine, { ...nothing, other: 'x' }, { ...nothing, outcome });
    const came = ask();
    await oneTick();
    waiting[0]?.();
    expect(await came).toBe('"theirs"');
    expect([waiting.length, upstream.length]).toEqual([1, 0]);
    expect(asked.map(({ awaited }) => awaited)).toEqual([undefined, undefined, 'x']);
  });

  it('a flight that waits at the gate of a gateway that shares a store waits no longer when another gateway has the answer', async () => {
    const { gate, waiting } = closedGate();
    const looks: SharedLook[] = [];
    const { ask, asked, mine, upstream, end } = withShared(looks, true, gate);
    const outcome = { kind: 'answered', answer: answer(0, '"theirs"'), forwardStatus: undefined } as const;
    looks.push(mine, nothing, { ...nothing, outcome });
    const came = ask();
    await oneTick();
    // One that was of no use, and one that was.
    end('x');
    await oneTick();
    end('y');
    expect(await came).toBe('"theirs"');
    expect([waiting.length, upstream.length]).toEqual([1, 0]);
    expect(asked.slice(1)).toEqual([
      { mayFind: true, awaited: 'x', mayTake: false },
      { mayFind: true, awaited: 'y', mayTake: false },
    ]);
  });

  it('a flight that does not wait at the gate of a gateway that shares a store keeps the turn that it took with its only look', async () => {
    const [circuit, gate] = [new Circuit(), paceAttempts({ maxClosedMs: 1_000, baseMs: 20, capMs: 100 })];
    const retry = retryFailures({ limit: 2, baseMs: 20, capMs: 100, isGated: false });
    const layers = [retry, retryWithKey, circuit.layer, gate.layer, circuit.atTurn];
    const { ask, asked, published } = withShared([], true, (next) => compose(layers, next));
    expect(await ask()).toBe('"from the upstream"');
    expect([asked.length, published.length]).toEqual([1, 1]);
    expect(published).toMatchObject([{ kind: 'stored' }]);
  });

  it('a flight that waits at the gate of a gateway that shares a store leaves its read to others again after a 429', async () => {
    const throttled: Gate = (next) => async (own, trace) => {
      const refused = askAtTurn(() => ({ ...answer(0, ''), status: 429 }));
      await refused(own, trace);
      expect(published).toEqual(['released']);
      return next(own, trace);
    };
    const { ask, asked, published } = withShared([], true, throttled);
    expect(await ask()).toBe('"from the upstream"');
    expect(asked).toHaveLength(2);
    expect(published).toMatchObject(['released', { kind: 'stored' }]);
  });

  it('a flight that waits at the gate of a gateway that shares a store has its turn although what another gateway brought is a fault', async () => {
    const { gate, waiting } = closedGate();
    const looks: SharedLook[] = [];
    const { ask, mine, end } = withShared(looks, true, gate);
    const stored = Object.defineProperty({ ...answer(0, '1') }, 'headers', {
      get() {
        throw new TypeError('a fault');
      },
    });
    looks.push(mine, { ...nothing, stored }, mine);
    const came = ask();
    await oneTick();
    end('x');
    await oneTick();
    waiting[0]?.();
    expect(await came).toBe('"from the upstream"');
  });
});

describe('a flight whose gateway shares a store', () => {
  it('a flight whose gateway shares a store takes a fresh answer of another gateway, for all requests of the flight but one that wants a newer one', async () => {
    const stored = answer(5_000, '"from another gateway"');
    const { ask, upstream, asked } = withShared([{ ...nothing, stored }, undefined]);
    const plain = [ask(), ask()];
    const strict = ask({ cacheControl: 'no-cache' });
    expect(await Promise.all(plain)).toEqual(['"from another gateway"', '"from another gateway"']);
    expect(await strict).toBe('"from the upstream"');
    expect(upstream).toHaveLength(1);
    expect(asked).toHaveLength(2);
  });

  it('a flight whose gateway shares a store is one look for all its requests, and none for a hit in memory', async () => {
    const { ask, asked } = withShared([{ ...nothing, stored: answer(0, '1') }]);
    await Promise.all(Array.from({ length: 50 }, () => ask()));
    await ask();
    expect(asked).toEqual([{ mayFind: true, awaited: undefined, mayTake: true }]);
  });

  it.each<[string, Partial<SharedLook>]>([
    ['an answer of the store', { stored: answer(0, '1') }],
    [
      'the outcome of another gateway',
      { outcome: { kind: 'answered', answer: answer(0, '1'), forwardStatus: undefined } },
    ],
  ])(
    'a flight whose gateway shares a store shows none of its requests a status of the upstream where it got %s',
    async (_, look) => {
      const { ask, traces } = withShared([{ ...nothing, ...look }]);
      await Promise.all([ask(), ask()]);
      expect(traces.map(({ upstreamStatus }) => upstreamStatus)).toEqual([undefined, undefined]);
    },
  );

  it('a flight whose gateway shares a store asks nothing of a store that is away', async () => {
    const { ask, asked, upstream } = withShared([], false);
    expect(await ask()).toBe('"from the upstream"');
    expect([asked.length, upstream.length]).toEqual([0, 1]);
  });

  it('a flight whose gateway shares a store waits for the exchange of another gateway, and takes its failure as its own', async () => {
    const error = new GatewayError('upstream-timeout');
    const { ask, asked, upstream } = withShared([
      { ...nothing, other: 'x' },
      { ...nothing, outcome: { kind: 'failed', error } },
    ]);
    await expect(ask()).rejects.toBe(error);
    expect(asked.map(({ awaited }) => awaited)).toEqual([undefined, 'x']);
    expect(upstream).toHaveLength(0);
  });

  it('a flight whose gateway shares a store asks the upstream where the store gives no turn and names no gateway that has it', async () => {
    const { ask, asked, upstream, published } = withShared([nothing, nothing, nothing, undefined]);
    expect(await ask()).toBe('"from the upstream"');
    expect(asked.map(({ mayFind }) => mayFind)).toEqual([true, false]);
    expect([upstream.length, published.length]).toEqual([1, 0]);
  });

  it('a flight whose gateway shares a store looks for a turn again where the outcome that it waited for is of no use', async () => {
    const looks = [{ ...nothing, other: 'x' }, nothing];
    const { ask, asked, published, mine } = withShared(looks);
    looks.push(mine);
    expect(await ask()).toBe('"from the upstream"');
    expect(asked.map(({ awaited }) => awaited)).toEqual([undefined, 'x', undefined]);
    expect(published).toHaveLength(1);
  });

  it('a flight whose gateway shares a store publishes what its own exchange brought', async () => {
    const { ask, published } = withShared([]);
    await ask();
    expect(published).toMatchObject([{ kind: 'stored' }]);
  });

  it('a flight whose gateway shares a store waits for no other where answers fit one request each', async () => {
    const { ask, upstream, published } = withShared([{ ...nothing, stored: 'not shareable', other: 'x' }]);
    expect(await ask()).toBe('"from the upstream"');
    expect([upstream.length, published.length]).toEqual([1, 0]);
  });

  it('a flight whose gateway shares a store forgets what it has in memory when another gateway purges', async () => {
    const { ask, upstream, purge } = withShared([]);
    await ask();
    await ask();
    expect(upstream).toHaveLength(1);
    purge();
    await ask();
    expect(upstream).toHaveLength(2);
  });

  it('a flight whose gateway shares a store fails for all its requests when what the store gives is a fault, gives its turn back, and is not joined any more', async () => {
    const fault = new TypeError('a fault');
    const stored = Object.defineProperty({ ...answer(0, '1') }, 'headers', {
      get() {
        throw fault;
      },
    });
    const looks: SharedLook[] = [];
    const { ask, mine, published } = withShared(looks);
    looks.push({ ...mine, stored }, mine);
    expect(await Promise.allSettled([ask(), ask()])).toMatchObject([{ reason: fault }, { reason: fault }]);
    expect(published).toEqual(['released']);
    expect(await ask()).toBe('"from the upstream"');
  });
});
