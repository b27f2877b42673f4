/** Who waits at the gate: people in one fair line, background work in another behind it. No clock, no I/O. */
import type { Turn } from '../claim.ts';
import { type FairQueue, queueFairly, type Waiting } from './fair-queue.ts';
import type { CallerQueue, Ticket } from './turnstile.ts';

export interface TwoLines<T extends Ticket> {
  readonly size: number;
  /** How many of this caller wait, in both lines. */
  sizeOf(name: string): number;
  add(ticket: T): void;
  /** Takes a ticket out; false when it does not stand here. */
  remove(ticket: T): boolean;
  /** The next in turn, taken out; or, for a risk, the next of the caller with most waiting. */
  take(isRisky: boolean): T | undefined;
  /** Whether the next in turn asks for less than its share. */
  nextIsLight(): boolean;
  /** How many go before this one, if it joined now, and how many of them are its own caller's. */
  ahead(ticket: Waiting): number;
  ownAhead(ticket: Waiting): number;
  /** Whether it would stand last of its caller's, in the line that it would join. */
  goesLast(ticket: Waiting): boolean;
  /** How many turns there are of all for each of this caller's, and before one with so many of its own before it. */
  turnsEach(turn: Turn): number;
  likelyAhead(turn: Turn, own: number): number;
  /** Counts a turn that was taken while nobody had to wait. */
  charge(turn: Turn): void;
  /** A turn that came to nothing is given back to its caller. */
  refund(turn: Turn): void;
  /** Everybody, in the order of their turns as far as it is known now. */
  inOrder(): T[];
  /** Everybody, in no order. */
  all(): T[];
  /** Who should make room for this one where all places are taken: background work, or the longest line's last. */
  displacedBy(ticket: T): T | undefined;
  callers(nowMs: number): CallerQueue[];
}

export function standInLine<T extends Ticket>(): TwoLines<T> {
  const people = queueFairly<T>();
  const background = queueFairly<T>();
  /** Under which name a ticket stands, and in which of the two: its turn may have changed since. */
  const places = new Map<T, { line: FairQueue<T>; name: string }>();

  const lineOf = (turn: Turn): FairQueue<T> => (turn.background ? background : people);

  return {
    get size() {
      return people.size + background.size;
    },
    sizeOf: (name) => people.sizeOf(name) + background.sizeOf(name),

    add(ticket) {
      const line = lineOf(ticket.turn);
      line.add(ticket);
      places.set(ticket, { line, name: ticket.turn.name });
    },

    remove(ticket) {
      const place = places.get(ticket);
      if (place === undefined) return false;
      places.delete(ticket);
      return place.line.remove(ticket, place.name);
    },

    take(isRisky) {
      const line = people.size > 0 ? people : background;
      const ticket = isRisky ? line.takeFromHeaviest() : line.take();
      if (ticket !== undefined) places.delete(ticket);
      return ticket;
    },

    nextIsLight: () => people.nextIsLight(),
    ahead: (ticket) =>
      ticket.turn.background ? people.size + background.ahead(ticket) : people.ahead(ticket),
    ownAhead: (ticket) => lineOf(ticket.turn).ownAhead(ticket),
    goesLast(ticket) {
      const line = lineOf(ticket.turn);
      return line.ownAhead(ticket) === line.sizeOf(ticket.turn.name);
    },
    turnsEach: (turn) => lineOf(turn).turnsEach(turn),
    likelyAhead: (turn, own) => lineOf(turn).likelyAhead(turn, own),
    charge: (turn) => lineOf(turn).charge(turn),
    refund: (turn) => lineOf(turn).refund(turn),
    inOrder: () => [...people.inOrder(), ...background.inOrder()],
    all: () => [...places.keys()],

    displacedBy({ turn }) {
      if (background.size > 0) return turn.background ? undefined : background.longest()?.entry;
      const longest = people.longest();
      const own = people.sizeOf(turn.name);
      return longest !== undefined && longest.length > own + 1 ? longest.entry : undefined;
    },

    callers(nowMs) {
      const callers = new Map<string, CallerQueue>();
      for (const line of [people, background]) {
        for (const { name, length, oldestMs } of line.lines()) {
          const known = callers.get(name);
          callers.set(name, {
            name,
            length: length + (known?.length ?? 0),
            oldestWaitMs: Math.max(nowMs - oldestMs, known?.oldestWaitMs ?? 0),
          });
        }
      }
      return [...callers.values()];
    },
  };
}
