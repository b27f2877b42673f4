/**
 * One upstream exchange that several requests share.
 *
 * Seen from below it is one claim: the latest deadline and the best turn of those who wait at the moment; it ends
 * when nobody waits any more. Seen by each who waits it is its own: whoever leaves, or whose time is up, goes with
 * its own reason, and the others notice nothing.
 */
import { type Claim, type ClaimWatcher, FixedClaim, type Turn, WatchedClaim } from '../claim.ts';
import { GatewayError } from '../errors.ts';

// setTimeout takes no more; a longer wait would fire at once.
const maxTimerMs = 2_147_483_647;
const nobody: Turn = { name: '', weight: 1, background: true };

/** One who waits for a flight, by a claim of its own. */
export class Seat<Outcome> implements ClaimWatcher {
  readonly claim: Claim;
  /** Nobody but its flight ends the claim: at its deadline, the flight does. */
  readonly isOurs: boolean;
  /** Settles with the flight's outcome; with what `gone` makes of the reason when this one leaves before it. */
  readonly arrival: Promise<Outcome>;
  /** Its place in the flight. */
  index = -1;
  readonly #flight: Flight<Outcome>;
  readonly #gone: (reason: Error) => Outcome;
  #resolve: (outcome: Outcome) => void = () => {};

  constructor(flight: Flight<Outcome>, claim: Claim, gone: (reason: Error) => Outcome, isOurs: boolean) {
    this.#flight = flight;
    this.claim = claim;
    this.#gone = gone;
    this.isOurs = isOurs;
    this.arrival = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  arrive(outcome: Outcome): void {
    this.claim.unwatch(this);
    this.#resolve(outcome);
  }

  /** Gives up waiting. */
  leave(reason: Error): void {
    if (this.index === -1) return;
    this.arrive(this.#gone(reason));
    this.#flight.remove(this, reason);
  }

  onEnd(reason: Error): void {
    this.leave(reason);
  }

  onChange(): void {
    this.#flight.reconsider();
  }
}

/** A flight and, for the layers below, the claim of all who wait for it. */
export class Flight<Outcome> extends WatchedClaim implements Claim {
  #deadlineMs = -Infinity;
  #turn: Turn | undefined;
  #seats: Seat<Outcome>[] = [];
  #onAbandoned: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires. */
  #watchedMs = Infinity;

  /** @param onAbandoned the last one has left: nobody may enter any more */
  constructor(onAbandoned: () => void) {
    super();
    this.#onAbandoned = onAbandoned;
  }

  get deadlineMs(): number {
    return this.#deadlineMs;
  }

  get turn(): Turn {
    return this.#turn ?? nobody;
  }

  /**
   * @param gone the outcome for this one alone, when it leaves before the flight arrives
   * @param isOurs nobody but this flight ends the claim
   */
  enter(own: Claim, gone: (reason: Error) => Outcome, isOurs = false): Seat<Outcome> {
    const seat = new Seat(this, own, gone, isOurs);
    seat.index = this.#seats.push(seat) - 1;
    own.watch(seat);
    // A rush of thousands enters one by one: nobody is looked at again for each.
    const formerMs = this.#deadlineMs;
    const { turn: former } = this;
    this.#adopt(
      Math.max(own.deadlineMs, formerMs),
      this.#turn === undefined || isBetter(own.turn, former) ? own.turn : former,
    );
    if (isOurs || own.deadlineMs < formerMs) this.#watchUntil(own.deadlineMs);
    else if (own.deadlineMs > formerMs && this.#seats.length > 1) this.#watchUntil(formerMs);
    if (own.ended !== undefined) seat.leave(own.ended);
    return seat;
  }

  /** Gives everybody who still waits the outcome, and holds nothing any more. */
  settle(outcome: Outcome): void {
    clearTimeout(this.#timer);
    const seats = this.#seats;
    this.#seats = [];
    this.#onAbandoned = undefined;
    for (const seat of seats) {
      seat.index = -1;
      seat.arrive(outcome);
    }
  }

  /** For seats alone: somebody has left. */
  remove(seat: Seat<Outcome>, reason: Error): void {
    const last = this.#seats.pop();
    if (last !== undefined && last !== seat) {
      this.#seats[seat.index] = last;
      last.index = seat.index;
    }
    seat.index = -1;
    if (this.#seats.length > 0) {
      // Most leave without having been the latest or the best: then nothing changed for anybody.
      if (seat.claim.deadlineMs >= this.#deadlineMs || seat.claim.turn === this.#turn) this.reconsider();
      return;
    }
    clearTimeout(this.#timer);
    this.#onAbandoned?.();
    this.end(reason);
  }

  /** For seats alone: looks at everybody again, because somebody left, or a claim changed. */
  reconsider(): void {
    let latestMs = -Infinity;
    let best: Turn | undefined;
    for (const { claim } of this.#seats) {
      latestMs = Math.max(latestMs, claim.deadlineMs);
      if (best === undefined || isBetter(claim.turn, best)) best = claim.turn;
    }
    this.#adopt(latestMs, best);
    this.#watchDeadlines();
  }

  #adopt(latestMs: number, best: Turn | undefined): void {
    if (latestMs === this.#deadlineMs && best === this.#turn) return;
    this.#deadlineMs = latestMs;
    this.#turn = best;
    this.changed();
  }

  // The layers below keep the latest deadline. Who must go earlier is ours to watch.
  #watchDeadlines(): void {
    this.#watchedMs = Infinity;
    let firstMs = Infinity;
    for (const { claim, isOurs } of this.#seats) {
      const { deadlineMs } = claim;
      if ((isOurs || deadlineMs < this.#deadlineMs) && deadlineMs < firstMs) firstMs = deadlineMs;
    }
    this.#watchUntil(firstMs);
  }

  #watchUntil(timeMs: number): void {
    if (timeMs >= this.#watchedMs) return;
    this.#watchedMs = timeMs;
    clearTimeout(this.#timer);
    const delayMs = Math.min(Math.max(0, Math.ceil(timeMs - performance.now())), maxTimerMs);
    this.#timer = setTimeout(() => this.#expire(), delayMs);
    this.#timer.unref();
  }

  #expire(): void {
    const nowMs = performance.now();
    for (const seat of [...this.#seats]) {
      const { deadlineMs } = seat.claim;
      if (deadlineMs > nowMs || (!seat.isOurs && deadlineMs === this.#deadlineMs)) continue;
      seat.leave(
        new GatewayError('upstream-timeout', { reason: 'its time was up before the shared exchange' }),
      );
    }
    this.#watchDeadlines();
  }
}

/** Who waits goes before a refresh; among equals the greater share, then whoever came first. */
function isBetter(turn: Turn, than: Turn): boolean {
  if (turn.background !== than.background) return than.background;
  return turn.weight > than.weight;
}

/** The claim of a refresh: behind everybody, counted to the caller whose request found the answer stale. */
export function backgroundClaim(of: Claim, deadlineMs: number): Claim {
  return new FixedClaim(deadlineMs, { ...of.turn, background: true });
}
