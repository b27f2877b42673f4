/**
 * The gate's rules against a simulated upstream on a virtual clock: no timer, no promise, no chance but the seed.
 */
import { decideTurns } from '../../src/upstream/gate-policy.ts';
import type { Attempt, Refusal, TurnstileOptions } from '../../src/upstream/turnstile.ts';

export interface SimulatedCaller {
  readonly name: string;
  readonly loops: number;
  readonly thinkMs: number;
  readonly weight?: number;
  /** Comes back after so long whatever it was told, ms. */
  readonly comesBackMs?: number;
  /** Does not come back once it has been turned away. */
  readonly givesUp?: boolean;
}

export interface Scenario {
  readonly seconds: number;
  /** Attempts per second that the upstream allows, by the second of the run. */
  readonly limit: (second: number) => number;
  readonly burst: number;
  /** The upstream is no bucket: it allows `limit` times this in each window of so many seconds. */
  readonly windowSeconds?: number;
  /** With a window, every 429 asks for the rest of it, in whole seconds. */
  readonly statesWindow?: boolean;
  /** What every 429 asks for, ms. */
  readonly retryAfterMs?: number | undefined;
  readonly latencyMs?: number;
  /** The first attempts take up to so much longer to get there: connections are made, code is compiled. */
  readonly slowStartMs?: number;
  /** What one attempt costs the processor of this side, ms: it can send no more than one in so long. */
  readonly costMs?: number;
  readonly callers: readonly SimulatedCaller[];
  readonly seed?: number;
  readonly deadlineMs?: number;
  readonly options?: Partial<TurnstileOptions>;
}

export interface CallerFigures {
  readonly done: number;
  readonly refused: number;
  /** What it would have got from a fair neighbourhood: the lesser of its demand and its max-min share. */
  readonly entitled: number;
  readonly p50: number;
  readonly p99: number;
}

export interface Figures {
  /** Accepted by the upstream, as a share of what the limit and the demand made possible. */
  readonly goodput: number;
  /** 429s as a share of all attempts. */
  readonly wasted: number;
  readonly attempts: number;
  readonly refusals: number;
  readonly turnedAway: number;
  readonly earlySends: number;
  /** How long those turned away had waited, ms: 0 where it was told at once. */
  readonly waitedInVain: readonly number[];
  /** Turned away, come back as told, and turned away again. */
  readonly refusedAgain: number;
  /** All times that those turned away were told, ms. */
  readonly told: readonly number[];
  /** Whether one who comes alone a minute, ten minutes and an hour later is sent up, each at a gate left as it was. */
  readonly isLoneServed: boolean;
  /** How often the gate has closed. */
  readonly closings: number;
  readonly callers: ReadonlyMap<string, CallerFigures>;
  readonly log: string[];
}

interface Ticket {
  turn: { name: string; weight: number; background: boolean };
  deadlineMs: number;
  arrivedMs: number;
  refusedTimes: number;
  /** It comes back as it was told. */
  isReturn: boolean;
  caller: SimulatedCaller;
}

/** mulberry32 */
export function seeded(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function simulate(scenario: Scenario): Figures {
  const random = seeded(scenario.seed ?? 1);
  const endMs = scenario.seconds * 1000;
  const latencyMs = scenario.latencyMs ?? 10;
  const patienceMs = scenario.deadlineMs ?? 25_000;
  const gate = decideTurns<Ticket>({
    maxClosedMs: 300_000,
    baseMs: 500,
    capMs: 8000,
    initialWindow: 10,
    maxInFlight: 64,
    maxWaiting: 10_000,
    maxWaitingPerCaller: 1000,
    random,
    ...scenario.options,
  });

  // Events: a binary heap would be faster; buckets per ms are simple and fast enough.
  const agenda = new Map<number, (() => void)[]>();
  const times: number[] = [];
  let now = 0;
  const push = (t: number): void => {
    let i = times.length;
    times.push(t);
    while (i > 0) {
      const p = (i - 1) >> 1;
      if ((times[p] as number) <= t) break;
      times[i] = times[p] as number;
      i = p;
    }
    times[i] = t;
  };
  const pop = (): number => {
    const top = times[0] as number;
    const last = times.pop() as number;
    if (times.length > 0) {
      let i = 0;
      for (;;) {
        let c = 2 * i + 1;
        if (c >= times.length) break;
        if (c + 1 < times.length && (times[c + 1] as number) < (times[c] as number)) c++;
        if ((times[c] as number) >= last) break;
        times[i] = times[c] as number;
        i = c;
      }
      times[i] = last;
    }
    return top;
  };
  const at = (time: number, act: () => void): void => {
    // Timers of a real process have a resolution of 1 ms and fire late.
    const t = Math.max(Math.ceil(time * 10) / 10, now);
    const list = agenda.get(t);
    if (list) list.push(act);
    else {
      agenda.set(t, [act]);
      push(t);
    }
  };

  // The upstream: a token bucket, or one that is filled all at once.
  const windowMs = (scenario.windowSeconds ?? 0) * 1000;
  let tokens = windowMs > 0 ? 0 : scenario.burst;
  let filledMs = 0;
  let possible = tokens;
  let windowEndMs = 0;
  const fillWindow = (): void => {
    if (now < windowEndMs) return;
    const passed = Math.floor((now - windowEndMs) / windowMs) + 1;
    windowEndMs += passed * windowMs;
    tokens = scenario.limit(0) * (scenario.windowSeconds as number);
    possible = tokens * (Math.min(windowEndMs, endMs) / windowMs);
  };
  const statedMs = (): number | undefined => {
    if (windowMs === 0) return scenario.retryAfterMs;
    return scenario.statesWindow ? Math.ceil((windowEndMs - now) / 1000) * 1000 : undefined;
  };
  const fill = (): void => {
    if (windowMs > 0) {
      fillWindow();
      return;
    }
    while (filledMs < now) {
      const second = Math.floor(filledMs / 1000);
      const until = Math.min(now, (second + 1) * 1000);
      const gain = ((until - filledMs) * scenario.limit(second)) / 1000;
      tokens = Math.min(scenario.burst, tokens + gain);
      if (filledMs < endMs) possible += gain;
      filledMs = until;
    }
  };
  let closedForAllUntil = 0;
  let earlySends = 0;
  let accepted = 0;
  let attempts = 0;
  let refusals = 0;
  let turnedAway = 0;
  const waitedInVain: number[] = [];
  let refusedAgain = 0;
  const told: number[] = [];
  let closings = 0;
  const log: string[] = [];
  const done = new Map<string, number[]>(scenario.callers.map((c) => [c.name, []]));
  const away = new Map<string, number>();

  let wakeAt = Number.POSITIVE_INFINITY;
  const pump = (): void => {
    for (;;) {
      const next = gate.next(now);
      if (next.kind === 'wait') {
        const until =
          next.untilMs === undefined ? Number.POSITIVE_INFINITY : Math.max(Math.ceil(next.untilMs), now + 1);
        if (until < wakeAt) {
          wakeAt = until;
          at(until, () => {
            wakeAt = Number.POSITIVE_INFINITY;
            pump();
          });
        }
        return;
      }
      send(next.attempt, next.ticket);
    }
  };
  let busyUntilMs = 0;
  /** Until the processor has done its part. */
  const work = (): number => {
    busyUntilMs = Math.max(busyUntilMs, now) + (scenario.costMs ?? 0) / 2;
    return busyUntilMs - now;
  };
  const turnAway = (gone: readonly { ticket: Ticket; refusal: Refusal }[]): void => {
    for (const { ticket, refusal } of gone) finish(ticket, false, refusal);
  };
  const under = new Set<Attempt>();
  const send = (attempt: Attempt, ticket: Ticket): void => {
    attempts++;
    under.add(attempt);
    if (now < closedForAllUntil) earlySends++;
    const late = now < 300 && scenario.slowStartMs !== undefined ? scenario.slowStartMs * random() : 0;
    const there = latencyMs * (0.4 + 0.2 * random()) + late + work();
    at(now + there, () => {
      fill();
      const ok = tokens >= 1;
      if (ok) {
        tokens -= 1;
        if (now <= endMs) accepted++;
      } else refusals++;
      const waitMs = ok ? undefined : statedMs();
      const onAnswer = (): void => {
        under.delete(attempt);
        if (ok) {
          turnAway(gate.settled(attempt, { kind: 'answered', isHealthy: true }, now));
          finish(ticket, true);
        } else {
          if (waitMs !== undefined) closedForAllUntil = Math.max(closedForAllUntil, now + waitMs);
          log.push(
            `${(now / 1000).toFixed(2)} refused ${ticket.turn.name} as ${attempt.state} at ${gate.snapshot(now).perSecond?.toFixed(1)}`,
          );
          const wasClosed = gate.snapshot(now).state === 'closed';
          const late = gate.settled(attempt, { kind: 'refused', waitMs }, now);
          if (!wasClosed && gate.snapshot(now).state === 'closed') closings++;
          log[log.length - 1] += ` -> ${gate.snapshot(now).perSecond?.toFixed(1)}`;
          const backoff = 500 * 2 ** Math.min(ticket.refusedTimes++, 4);
          const own = Math.max(waitMs ?? 0, backoff) + random() * backoff * 0.25;
          if (ticket.refusedTimes > 4)
            finish(ticket, false, { code: 'upstream-rate-limited', retryAfterMs: own });
          else at(now + own, () => enter(ticket));
          turnAway(late);
        }
        pump();
      };
      at(now + latencyMs * (0.4 + 0.2 * random()), () => at(now + work(), onAnswer));
    });
  };
  const enter = (ticket: Ticket): void => {
    const admitted = gate.admit(ticket.turn, now);
    if (admitted !== undefined) {
      send(admitted, ticket);
      return;
    }
    const { refusal, displaced } = gate.enter(ticket, now);
    if (displaced) finish(displaced.ticket, false, displaced.refusal);
    if (refusal) finish(ticket, false, refusal);
    else {
      const deadline = ticket.deadlineMs;
      at(deadline, () => {
        if (gate.leave(ticket)) finish(ticket, false, gate.expired(ticket, now));
      });
    }
    pump();
  };
  const finish = (ticket: Ticket, ok: boolean, refusal?: Refusal): void => {
    const { caller } = ticket;
    if (ok) {
      if (now <= endMs) done.get(caller.name)?.push(now - ticket.arrivedMs);
      if (now < endMs) at(now + caller.thinkMs, () => arrive(caller));
    } else {
      turnedAway++;
      if (refusal !== undefined) told.push(refusal.retryAfterMs);
      log.push(
        `${(now / 1000).toFixed(2)} turned away ${caller.name}, arrived ${(ticket.arrivedMs / 1000).toFixed(2)}, refused ${ticket.refusedTimes}`,
      );
      away.set(caller.name, (away.get(caller.name) ?? 0) + 1);
      waitedInVain.push(now - ticket.arrivedMs);
      if (ticket.isReturn) refusedAgain++;
      // As the header has it: in whole seconds.
      const toldMs = Math.ceil((refusal?.retryAfterMs ?? 1000) / 1000) * 1000;
      const againMs = caller.comesBackMs ?? toldMs;
      if (now < endMs && caller.givesUp !== true) at(now + againMs, () => arrive(caller, true));
    }
  };
  const arrive = (caller: SimulatedCaller, isReturn = false): void => {
    enter({
      turn: { name: caller.name, weight: caller.weight ?? 1, background: false },
      arrivedMs: now,
      deadlineMs: now + patienceMs,
      refusedTimes: 0,
      isReturn,
      caller,
    });
  };
  for (const caller of scenario.callers) {
    for (let loop = 0; loop < caller.loops; loop++) at(random() * 5, () => arrive(caller));
  }
  while (times.length > 0) {
    const t = pop();
    if (t > endMs) break;
    now = t;
    const list = agenda.get(t) ?? [];
    // Acts may add to the list while it runs.
    for (let i = 0; i < list.length; i++) (list[i] as () => void)();
    agenda.delete(t);
  }
  now = endMs;
  fill();

  gate.clear();
  for (const attempt of under) gate.settled(attempt, { kind: 'answered', isHealthy: true }, now);
  const isServedAlone = (afterMs: number): boolean => {
    const atMs = endMs + afterMs;
    const turn = { name: 'lone', weight: 1, background: false };
    let attempt = gate.admit(turn, atMs);
    if (attempt === undefined) {
      const [caller] = scenario.callers as [SimulatedCaller];
      const lone = {
        turn,
        arrivedMs: atMs,
        deadlineMs: atMs + patienceMs,
        refusedTimes: 0,
        isReturn: false,
        caller,
      };
      if (gate.enter(lone, atMs).refusal !== undefined) return false;
      let next = gate.next(atMs);
      if (next.kind === 'wait') next = gate.next(next.untilMs ?? Number.NaN);
      if (next.kind === 'wait') return false;
      attempt = next.attempt;
    }
    gate.settled(attempt, { kind: 'answered', isHealthy: true }, atMs + latencyMs);
    return attempt.sentMs < atMs + patienceMs;
  };
  const isLoneServed = [60_000, 600_000, 3_600_000].every(isServedAlone);

  const demandOf = (c: SimulatedCaller): number => (c.loops * endMs) / (c.thinkMs + latencyMs);
  const shares = scenario.callers.map(() => 0);
  for (let second = 0; second < scenario.seconds; second++) {
    const asks = scenario.callers.map((c) => ({
      demand: demandOf(c) / scenario.seconds,
      weight: c.weight ?? 1,
    }));
    const capacity = scenario.limit(second) + (second === 0 ? scenario.burst : 0);
    maxMin(capacity, asks).forEach((share, i) => {
      shares[i] = (shares[i] as number) + share;
    });
  }
  const demand = scenario.callers.reduce((sum, c) => sum + demandOf(c), 0);
  const callers = new Map<string, CallerFigures>();
  scenario.callers.forEach((c, i) => {
    const times = (done.get(c.name) ?? []).sort((a, b) => a - b);
    callers.set(c.name, {
      done: times.length,
      refused: away.get(c.name) ?? 0,
      entitled: shares[i] as number,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
    });
  });
  return {
    goodput: accepted / Math.min(possible, demand),
    wasted: refusals / attempts,
    attempts,
    refusals,
    turnedAway,
    earlySends,
    waitedInVain,
    refusedAgain,
    told,
    isLoneServed,
    closings,
    callers,
    log,
  };
}

/** Fills everybody up to the same level per weight, and nobody beyond what it asks for. */
export function maxMin(capacity: number, asks: readonly { demand: number; weight: number }[]): number[] {
  const shares = asks.map(() => 0);
  let left = capacity;
  let open = asks.map((_, i) => i);
  while (open.length > 0 && left > 1e-9) {
    const weights = open.reduce((sum, i) => sum + (asks[i]?.weight ?? 1), 0);
    const level = left / weights;
    const content = open.filter((i) => (asks[i]?.demand ?? 0) <= level * (asks[i]?.weight ?? 1));
    if (content.length === 0) {
      for (const i of open) shares[i] = level * (asks[i]?.weight ?? 1);
      break;
    }
    for (const i of content) {
      shares[i] = asks[i]?.demand ?? 0;
      left -= shares[i] as number;
    }
    open = open.filter((i) => !content.includes(i));
  }
  return shares;
}

export function quantile(sorted: readonly number[], q: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * q) - 1)] ?? Number.NaN;
}
