/** Random histories of requests, answers, clocks and disconnects: what must hold whatever happens. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { shareAnswers } from '../../src/cache/cache.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import { timedContext } from '../../src/exchange/request-context.ts';
import { Trace } from '../../src/exchange/trace.ts';

const left = new Error('left');

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'Date', 'setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const defaults = { ttlMs: 5000, staleWhileRevalidateMs: 3000, staleIfErrorMs: 20_000 };
const maxBytes = 12_000;

/** What each Cache-Control allows, worked out by hand: fresh, and stale beyond that on refresh and on error; ms. */
const allowed: Record<
  string,
  { fresh: number; refresh: number; error: number; onlyOne?: true; spoils?: true }
> = {
  '': { fresh: 5000, refresh: 3000, error: 20_000 },
  'max-age=2': { fresh: 2000, refresh: 3000, error: 20_000 },
  'max-age=2, must-revalidate': { fresh: 2000, refresh: 0, error: 0, spoils: true },
  's-maxage=4': { fresh: 4000, refresh: 0, error: 0, spoils: true },
  'max-age=1, stale-while-revalidate=9, stale-if-error=9': { fresh: 1000, refresh: 9000, error: 9000 },
  'max-age=0': { fresh: 0, refresh: 0, error: 20_000 },
  'no-cache': { fresh: 0, refresh: 0, error: 0, spoils: true },
  'no-store': { fresh: 0, refresh: 0, error: 0, onlyOne: true },
  'private, max-age=60': { fresh: 0, refresh: 0, error: 0, onlyOne: true },
};

interface Body {
  readonly serial: number;
  readonly query: string;
  readonly language: string | undefined;
  readonly vary: string;
  readonly status: number;
  readonly generation: number;
}

const action = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('ask' as const),
      query: fc.constantFrom('?a', '?b', '?c'),
      language: fc.constantFrom(undefined, 'fr', 'de'),
      directives: fc.constantFrom(
        undefined,
        undefined,
        undefined,
        'no-cache',
        'max-age=1',
        'max-stale=4',
        'no-store',
      ),
      timeoutMs: fc.constantFrom(300, 2000, 25_000),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('give' as const),
      which: fc.nat(5),
      cacheControl: fc.constantFrom(...Object.keys(allowed)),
      vary: fc.constantFrom('', '', 'accept-language', '*'),
      status: fc.constantFrom(200, 200, 200, 200, 304, 304, 400, 404, 429, 503),
      age: fc.constantFrom(undefined, undefined, 1),
      padding: fc.constantFrom(10, 500, 3000),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('fail' as const), which: fc.nat(5) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('leave' as const), which: fc.nat(9) }) },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, 499, 1000, 2600, 7000) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('jump' as const), ms: fc.constantFrom(-86_400_000, 86_400_000) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('rotate' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('purge' as const) }) },
);

type Action = typeof action extends fc.Arbitrary<infer A> ? A : never;

async function play(history: readonly Action[], mayVary: boolean): Promise<void> {
  let generation = 1;
  let serial = 0;
  let vouchers = 0;
  /** When an answer was vouched for and under which directives; a 304 vouches anew, by a field that it replaces. */
  const vouched = new Map<number, { atMs: number; cacheControl: string }>();
  const receivers = new Map<number, number>();
  const pending: {
    request: UpstreamRequest;
    generation: number;
    give(a: Answer): void;
    fail(e: unknown): void;
  }[] = [];
  const callers: { leave(): void; settled: number; left: boolean }[] = [];
  const all: Promise<unknown>[] = [];
  const faults: unknown[] = [];

  const cache = shareAnswers({
    ...defaults,
    maxBytes,
    maxEntryBytes: 4000,
    generation: () => generation,
    refreshTimeoutMs: 6000,
  });
  const handle = cache.layer(
    (request) =>
      new Promise<Answer>((resolve, reject) => {
        const call = { request, generation, give: resolve, fail: reject };
        pending.push(call);
        request.context.signal.addEventListener('abort', () => {
          if (pending.includes(call)) pending.splice(pending.indexOf(call), 1);
          reject(request.context.signal.reason);
        });
      }),
  );

  function check(asked: Extract<Action, { do: 'ask' }>, trace: Trace, answer: Answer): void {
    const body = JSON.parse(answer.body.toString().trim()) as Body;
    const voucher = Number(answer.headers['x-voucher']);
    const source = vouched.get(voucher);
    const facts = trace.cache;
    if (source === undefined || facts === undefined) throw new Error('an answer out of nowhere');
    const may = allowed[source.cacheControl] ?? { fresh: 0, refresh: 0, error: 0 };
    expect(body.query).toBe(asked.query);
    const isFailure = body.status === 429 || body.status >= 500;
    if (body.vary === 'accept-language' || body.status === 400) {
      if (!isFailure) expect(body.language).toBe(asked.language);
    }
    const given = (receivers.get(voucher) ?? 0) + 1;
    receivers.set(voucher, given);
    if ((may.onlyOne === true || body.vary === '*') && !isFailure) expect(given).toBe(1);
    if (!facts.hit && facts.detail === undefined) return;
    expect(body.generation).toBe(generation);
    expect(body.vary).not.toBe('*');
    expect(body.status).not.toBe(429);
    const ageMs = performance.now() - source.atMs;
    // CACHE_TTL is for 200, and for the 400 that must not be repeated; nothing but a 200 is ever stale.
    const freshMs = source.cacheControl === '' && body.status !== 200 && body.status !== 400 ? 0 : may.fresh;
    const staleMs =
      body.status !== 200
        ? 0
        : facts.detail === 'stale-while-revalidate'
          ? may.refresh
          : facts.detail === 'stale-if-error'
            ? may.error
            : facts.detail === 'max-stale' && may.spoils !== true
              ? 4000
              : 0;
    expect(ageMs).toBeLessThanOrEqual(freshMs + staleMs);
    if (asked.directives === 'no-cache' && facts.detail !== 'stale-if-error')
      expect(ageMs).toBeLessThan(1500);
  }

  function ask(asked: Extract<Action, { do: 'ask' }>): void {
    const { context } = timedContext(asked.timeoutMs, {
      name: `${asked.timeoutMs}`,
      weight: 1,
      background: false,
    });
    const caller = { leave: () => context.end(left), settled: 0, left: false };
    callers.push(caller);
    const trace = new Trace(performance.now());
    const language = mayVary ? asked.language : undefined;
    const request: UpstreamRequest = {
      operation: 'list-accounts',
      path: '/analytics/accounts/',
      query: asked.query,
      keyedHeaders: {},
      headers: language === undefined ? {} : { 'accept-language': language },
      ids: {},
      callerIds: undefined,
      cacheControl: asked.directives,
      pragma: undefined,
      context,
    };
    const got = async () => handle(request, trace);
    all.push(
      got().then(
        (answer) => {
          caller.settled += 1;
          try {
            check({ ...asked, language }, trace, answer);
          } catch (fault) {
            faults.push(fault);
          }
        },
        (error: unknown) => {
          caller.settled += 1;
          if (error !== left && !(error instanceof GatewayError)) faults.push(error);
          if (error === left && !caller.left) faults.push(new Error("another's reason"));
        },
      ),
    );
  }

  function give(given: Extract<Action, { do: 'give' }>): void {
    const call = pending.splice(given.which % Math.max(1, pending.length), 1)[0];
    if (call === undefined) return;
    const { request } = call;
    const tag = request.validators?.['if-none-match'];
    const isConfirmation = given.status === 304 && tag !== undefined;
    const status = given.status === 304 ? (isConfirmation ? 304 : 200) : given.status;
    const vary = mayVary ? given.vary : '';
    const cacheControl = mayVary ? given.cacheControl : '';
    if (!isConfirmation) serial += 1;
    const own = isConfirmation ? Number(tag.slice(1, -1)) : serial;
    const nowMs = performance.now();
    const age = given.age ?? 0;
    vouchers += 1;
    vouched.set(vouchers, { atMs: nowMs - age * 1000, cacheControl });
    const body: Body = {
      serial: own,
      query: request.query,
      language: request.headers['accept-language'],
      vary,
      status,
      generation: call.generation,
    };
    call.give({
      status,
      headers: {
        etag: `"${own}"`,
        // A 304 must not change how its body varies: the stored one is judged by what it says now.
        ...(isConfirmation ? {} : { vary }),
        'cache-control': cacheControl,
        'x-voucher': `${vouchers}`,
        ...(given.age === undefined ? {} : { age: `${given.age}` }),
      },
      body: Buffer.from(isConfirmation ? '' : JSON.stringify(body).padEnd(given.padding)),
      sentMs: nowMs,
      receivedMs: nowMs,
      receivedAt: Date.now(),
      generation: call.generation,
    });
  }

  for (const step of history) {
    if (step.do === 'ask') ask(step);
    else if (step.do === 'give') give(step);
    else if (step.do === 'fail')
      pending
        .splice(step.which % Math.max(1, pending.length), 1)[0]
        ?.fail(new GatewayError('upstream-unreachable'));
    else if (step.do === 'wait') vi.advanceTimersByTime(step.ms);
    else if (step.do === 'jump') vi.setSystemTime(Date.now() + step.ms);
    else if (step.do === 'rotate') generation += 1;
    else if (step.do === 'purge') cache.purge();
    else {
      const caller = callers[callers.length - 1 - (step.which % Math.max(1, callers.length))];
      if (caller !== undefined) {
        caller.left = true;
        caller.leave();
      }
    }
    await nextTurn();
    if (faults.length > 0) throw faults[0];
    // Without `expect`, which would take half of the time of these steps.
    const { bytes } = cache.snapshot();
    if (bytes < 0 || bytes > maxBytes) throw new Error(`${bytes} bytes are stored`);
    if (!mayVary) {
      // Nothing here may be given to one alone, so each read has at most one exchange at any moment.
      const keys = pending.map((call) => `${call.request.query} ${call.generation}`);
      if (new Set(keys).size !== keys.length) throw new Error(`several exchanges: ${keys}`);
    }
  }
  // Open exchanges get their answers; then each request must have had exactly one.
  for (let i = 0; i < 200 && pending.length > 0; i += 1) {
    give({ do: 'give', which: 0, cacheControl: '', vary: '', status: 200, age: undefined, padding: 10 });
    await nextTurn();
  }
  await nextTurn();
  // Looked at before it is waited for: a caller that is forgotten must fail this, not hang it.
  expect(callers.every(({ settled }) => settled === 1)).toBe(true);
  await Promise.all(all);
  if (faults.length > 0) throw faults[0];
  expect(cache.snapshot().flights).toBe(0);
}

describe('over any history', () => {
  it('over any history no request gets an answer that is too old, another variant, another generation, or two answers', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 10, maxLength: 80 }), (history) => play(history, true)),
      { numRuns: 1000 },
    );
  });
  it('over any history each read has at most one exchange at a time where all may be shared', async () => {
    const calm = action.filter(
      (step) => step.do !== 'purge' && !(step.do === 'give' && (step.status === 400 || step.status === 404)),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(calm, { minLength: 10, maxLength: 80 }), (history) => play(history, false)),
      { numRuns: 500 },
    );
  });
});
