/**
 * One upstream exchange that several requests share.
 *
 * Seen from below it is one claim: the latest deadline and the best turn of those who wait at the moment, and a
 * signal that aborts when nobody waits any more. Seen by each who waits it is its own: whoever leaves, or whose
 * time is up, goes with its own reason, and the others notice nothing.
 */
import { GatewayError } from '../errors.ts';
import type { Claim, Turn } from './exchange.ts';
import { fixedClaim } from './plain-read.ts';

export interface Seat<Outcome> {
  /** Settles with the flight's outcome, or rejects when this one leaves before it. */
  wait(): Promise<Outcome>;
  /** Leaves with a reason. */
  leave(reason: unknown): void;
}

export interface Flight<Outcome> {
  /** What the layers below see. */
  readonly claim: Claim;
  /** @param isOurs nobody but this flight ends the claim: at its deadline, the flight does */
  enter(claim: Claim, isOurs?: boolean): Seat<Outcome>;
  /** Gives everybody who still waits the outcome. */
  settle(outcome: Outcome): void;
}

interface Waiter<Outcome> {
  readonly claim: Claim;
  readonly isOurs: boolean;
  depart(reason: unknown): void;
  arrive(outcome: Outcome): void;
}

// setTimeout takes no more; a longer wait would fire at once.
const maxTimerMs = 2_147_483_647;

/** @param onAbandoned the last one has left: nobody may enter any more */
export function openFlight<Outcome>(onAbandoned: () => void): Flight<Outcome> {
  const waiters = new Set<Waiter<Outcome>>();
  const listeners = new Set<() => void>();
  let deadlineMs = -Infinity;
  let turn: Turn | undefined;
  let controller: AbortController | undefined;
  let abandoned: { readonly reason: unknown } | undefined;
  let timer: NodeJS.Timeout | undefined;
  /** When the timer fires. */
  let watchedMs = Infinity;

  /** Looks at everybody again: somebody left, or a claim changed. */
  function changed(): void {
    let latestMs = -Infinity;
    let best: Turn | undefined;
    for (const { claim } of waiters) {
      latestMs = Math.max(latestMs, claim.deadlineMs);
      if (best === undefined || isBetter(claim.turn, best)) best = claim.turn;
    }
    adopt(latestMs, best);
    watchDeadlines();
  }

  function adopt(latestMs: number, best: Turn | undefined): void {
    if (latestMs === deadlineMs && best === turn) return;
    deadlineMs = latestMs;
    turn = best;
    for (const listener of [...listeners]) listener();
  }

  // The layers below keep the latest deadline. Who must go earlier is ours to watch.
  function watchDeadlines(): void {
    watchedMs = Infinity;
    let firstMs = Infinity;
    for (const { claim, isOurs } of waiters) {
      if ((isOurs || claim.deadlineMs < deadlineMs) && claim.deadlineMs < firstMs) firstMs = claim.deadlineMs;
    }
    watchUntil(firstMs);
  }

  function watchUntil(timeMs: number): void {
    if (timeMs >= watchedMs) return;
    watchedMs = timeMs;
    clearTimeout(timer);
    const delayMs = Math.min(Math.max(0, Math.ceil(timeMs - performance.now())), maxTimerMs);
    timer = setTimeout(expire, delayMs);
    timer.unref();
  }

  function expire(): void {
    const nowMs = performance.now();
    for (const waiter of [...waiters]) {
      if (waiter.claim.deadlineMs > nowMs || (!waiter.isOurs && waiter.claim.deadlineMs === deadlineMs))
        continue;
      waiter.depart(
        new GatewayError('upstream-timeout', { reason: 'its time was up before the shared exchange' }),
      );
    }
    watchDeadlines();
  }

  function remove(waiter: Waiter<Outcome>, reason: unknown): void {
    waiters.delete(waiter);
    if (waiters.size > 0) {
      // Most leave without having been the latest or the best: then nothing changed for anybody.
      if (waiter.claim.deadlineMs >= deadlineMs || waiter.claim.turn === turn) changed();
      return;
    }
    clearTimeout(timer);
    abandoned = { reason };
    onAbandoned();
    controller?.abort(reason);
  }

  const claim: Claim = {
    get signal() {
      // Built when first asked for: what is answered at once never needs it.
      controller ??= new AbortController();
      if (abandoned !== undefined && !controller.signal.aborted) controller.abort(abandoned.reason);
      return controller.signal;
    },
    get deadlineMs() {
      return deadlineMs;
    },
    get turn() {
      return turn ?? { name: '', weight: 1, background: true };
    },
    onChange(listener) {
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
  };

  return {
    claim,
    enter(own, isOurs = false) {
      const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
      // The seat may be given up before anybody waits on it.
      promise.catch(() => undefined);
      const onAbort = () => waiter.depart(own.signal.reason);
      const end = () => {
        own.signal.removeEventListener('abort', onAbort);
        stop();
      };
      const waiter: Waiter<Outcome> = {
        claim: own,
        isOurs,
        depart(reason) {
          if (!waiters.has(waiter)) return;
          end();
          reject(reason);
          remove(waiter, reason);
        },
        arrive(outcome) {
          end();
          resolve(outcome);
        },
      };
      waiters.add(waiter);
      const stop = own.onChange(changed);
      // A rush of thousands enters one by one: nobody is looked at again for each.
      const formerMs = deadlineMs;
      adopt(
        Math.max(own.deadlineMs, formerMs),
        turn === undefined || isBetter(own.turn, turn) ? own.turn : turn,
      );
      if (isOurs || own.deadlineMs < formerMs) watchUntil(own.deadlineMs);
      else if (own.deadlineMs > formerMs && waiters.size > 1) watchUntil(formerMs);
      if (own.signal.aborted) onAbort();
      else own.signal.addEventListener('abort', onAbort, { once: true });
      return { wait: () => promise, leave: (reason) => waiter.depart(reason) };
    },
    settle(outcome) {
      clearTimeout(timer);
      const all = [...waiters];
      waiters.clear();
      listeners.clear();
      for (const waiter of all) waiter.arrive(outcome);
    },
  };
}

/** Who waits goes before a refresh; among equals the greater share, then whoever came first. */
function isBetter(turn: Turn, than: Turn): boolean {
  if (turn.background !== than.background) return than.background;
  return turn.weight > than.weight;
}

/** The claim of a refresh: behind everybody, counted to the caller whose request found the answer stale. */
export function backgroundClaim(of: Claim, deadlineMs: number): Claim {
  return fixedClaim(new AbortController().signal, deadlineMs, { ...of.turn, background: true });
}
