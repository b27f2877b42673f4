/**
 * Whose turn it is: start-time fair queueing between callers, oldest first within one. No clock, no I/O.
 *
 * Every caller has a start tag; the lowest goes next, and each turn moves its caller's tag on by
 * 1 / weight. Virtual time is the tag last served. A caller that comes back after a while starts at virtual
 * time, before everybody who has been served more than it: one that asks for less than its share waits for at
 * most the turns of its equals, never for a neighbour's queue. A turn costs O(log callers).
 */
import type { Turn } from '../claim.ts';
import { type HeapItem, heapBy } from './heap.ts';
import { type OthersTurns, watchOthers } from './others-turns.ts';

/** What waits. `arrivedMs` orders within a caller, so that what was refused returns to its old place. */
export interface Waiting {
  readonly turn: Turn;
  readonly arrivedMs: number;
}

interface Line<T> extends HeapItem {
  readonly name: string;
  weight: number;
  /** The start tag of its next turn. */
  start: number;
  /** Breaks ties between equal tags: whose next has waited longest. */
  oldestMs: number;
  /** Turns since it has something waiting. */
  served: number;
  readonly others: OthersTurns;
  /** Whether it had had less than its share when it came. */
  readonly cameEarly: boolean;
  readonly waiting: T[];
}

export interface FairQueue<T extends Waiting> {
  readonly size: number;
  sizeOf(name: string): number;
  add(entry: T): void;
  /** Takes one out; false when it was not there. `name` is the one it was added under. */
  remove(entry: T, name: string): boolean;
  /** The next in turn, taken out. */
  take(): T | undefined;
  /**
   * Whether the next in turn asks for less than its share: it had nothing waiting a moment ago and has not had
   * more than the others.
   */
  nextIsLight(): boolean;
  /** The next of the caller that has had most so far, taken out: the one to bear a risk. */
  takeFromHeaviest(): T | undefined;
  /** Counts a turn that was taken while nobody had to wait. */
  charge(turn: Turn): void;
  /** A turn that came to nothing is given back to its caller. */
  refund(turn: Turn): void;
  /** How many go before this one, if it joined now, and how many of them are its own caller's. */
  ahead(entry: Waiting): number;
  ownAhead(entry: Waiting): number;
  /** How many turns there are of all for each of this caller's, as far as it can be told. */
  turnsEach(turn: Turn): number;
  /**
   * How many go before one of this caller with so many of its own before it, if those come back who have nothing
   * waiting just now: callers think between their requests.
   */
  likelyAhead(turn: Turn, own: number): number;
  /** Everybody, in the order of their turns as far as it is known now. */
  inOrder(): T[];
  /** The last entry of the longest line and that line's length. */
  longest(): { entry: T; length: number } | undefined;
  lines(): Iterable<{ readonly name: string; readonly length: number; readonly oldestMs: number }>;
}

/** A caller of weight 1 whose line has not been empty for this many turns asks for its share or more. */
const lightTurns = 4;
/** Where more callers than that wait, none of them would be served at once by being light. */
const lightCallers = 5;

export function queueFairly<T extends Waiting>(): FairQueue<T> {
  const active = new Map<string, Line<T>>();
  /** Start tags of callers that were served lately and have nothing waiting; forgotten once they say nothing. */
  const idle = new Map<string, { readonly start: number; readonly weight: number }>();
  const heap = heapBy<Line<T>>((a, b) => (a.start === b.start ? a.oldestMs < b.oldestMs : a.start < b.start));
  let now = 0;
  let size = 0;
  /** Turns there have been, but for those out of order. */
  let turns = 0;
  /** Of those who wait. */
  let weights = 0;

  const forget = (): void => {
    if (active.size === 0) {
      // Nobody waits: there is nothing left to be fair about.
      idle.clear();
      now = 0;
    } else if (idle.size > 64 + 2 * active.size) {
      for (const [name, { start, weight }] of idle) if (start <= earliest(weight)) idle.delete(name);
    }
  };

  /**
   * One that comes back starts a turn before virtual time, if it has had so little: else it would wait behind those
   * who have had as much as everybody and want more, and whose turn is next.
   */
  const earliest = (weight: number): number => now - 1 / weight;

  const startOf = ({ name, weight }: Turn): number =>
    active.get(name)?.start ?? Math.max(earliest(weight), idle.get(name)?.start ?? 0);

  const setIdle = (name: string, start: number, weight: number): void => {
    if (start > earliest(weight)) idle.set(name, { start, weight });
    else idle.delete(name);
  };

  const close = (line: Line<T>): void => {
    heap.remove(line);
    active.delete(line.name);
    weights = active.size === 0 ? 0 : weights - line.weight;
    setIdle(line.name, line.start, line.weight);
    forget();
  };

  const serve = (line: Line<T>): T => {
    const entry = line.waiting.shift() as T;
    size--;
    line.start += 1 / line.weight;
    line.served++;
    const next = line.waiting[0];
    if (next === undefined) close(line);
    else {
      line.oldestMs = next.arrivedMs;
      heap.moved(line);
    }
    return entry;
  };

  const othersPerTime = ({ name }: Turn): number | undefined => {
    const line = active.get(name);
    return line?.others.perTime(turns, now, line.waiting.length);
  };

  const ownAhead = ({ turn: { name }, arrivedMs }: Waiting): number => {
    const own = active.get(name)?.waiting ?? [];
    let before = own.length;
    while (before > 0 && (own[before - 1] as T).arrivedMs > arrivedMs) before--;
    return before;
  };

  return {
    get size() {
      return size;
    },
    sizeOf: (name) => active.get(name)?.waiting.length ?? 0,

    add(entry) {
      const { name, weight } = entry.turn;
      let line = active.get(name);
      if (line === undefined) {
        const start = startOf(entry.turn);
        const cameEarly = (idle.get(name)?.start ?? now) <= now;
        line = {
          name,
          weight,
          start,
          oldestMs: entry.arrivedMs,
          served: 0,
          others: watchOthers(weight, turns, now),
          cameEarly,
          waiting: [],
          slot: -1,
        };
        idle.delete(name);
        active.set(name, line);
        heap.add(line);
        weights += weight;
      }
      weights += weight - line.weight;
      line.weight = weight;
      const { waiting } = line;
      let place = waiting.length;
      while (place > 0 && (waiting[place - 1] as T).arrivedMs > entry.arrivedMs) place--;
      if (place === waiting.length) waiting.push(entry);
      else waiting.splice(place, 0, entry);
      if (place === 0 && line.oldestMs !== entry.arrivedMs) {
        line.oldestMs = entry.arrivedMs;
        heap.moved(line);
      }
      size++;
    },

    remove(entry, name) {
      const line = active.get(name);
      const place = line?.waiting.indexOf(entry) ?? -1;
      if (line === undefined || place < 0) return false;
      line.waiting.splice(place, 1);
      size--;
      const next = line.waiting[0];
      if (next === undefined) close(line);
      else if (place === 0) {
        line.oldestMs = next.arrivedMs;
        heap.moved(line);
      }
      return true;
    },

    take() {
      const line = heap.items[0];
      if (line === undefined) return undefined;
      now = Math.max(now, line.start);
      turns++;
      line.others.took(turns, now, line.waiting.length);
      return serve(line);
    },

    nextIsLight() {
      const line = heap.items[0];
      if (line === undefined || heap.items.length > lightCallers) return false;
      return line.cameEarly && line.served < lightTurns * line.weight;
    },

    takeFromHeaviest() {
      let heaviest: Line<T> | undefined;
      for (const line of heap.items) {
        if (heaviest === undefined || load(line) > load(heaviest)) heaviest = line;
      }
      return heaviest === undefined ? undefined : serve(heaviest);
    },

    charge(turn) {
      const { name, weight } = turn;
      const line = active.get(name);
      if (line === undefined) {
        setIdle(name, startOf(turn) + 1 / weight, weight);
        return;
      }
      line.start += 1 / line.weight;
      line.served++;
      heap.moved(line);
    },

    refund(turn) {
      const { name, weight } = turn;
      const line = active.get(name);
      if (line !== undefined) {
        line.start = Math.max(earliest(line.weight), line.start - 1 / line.weight);
        heap.moved(line);
        return;
      }
      setIdle(name, startOf(turn) - 1 / weight, weight);
    },

    ownAhead,

    turnsEach(turn) {
      const waiting = weights - (active.get(turn.name)?.weight ?? 0);
      return 1 + (othersPerTime(turn) ?? waiting) / turn.weight;
    },

    likelyAhead(turn, own) {
      const others = othersPerTime(turn);
      if (own === 0 || others === undefined) return own;
      // It has had turns out of order, or of the first crowd: others catch up on it before it goes on.
      const lead = startOf(turn) - now - 1 / turn.weight;
      return own * (1 + others / turn.weight) + Math.max(lead, 0) * others;
    },

    ahead(entry) {
      const {
        turn: { name, weight },
        arrivedMs,
      } = entry;
      const before = ownAhead(entry);
      const tag = startOf(entry.turn) + before / weight;
      let count = before;
      for (const { name: other, start, weight: pace, waiting } of heap.items) {
        if (other === name) continue;
        const turns = Math.max(0, (tag - start) * pace);
        const earlier = Math.min(Math.ceil(turns - 1e-9), waiting.length);
        count += earlier;
        // One with the same tag goes first if it is older.
        const equal = Math.abs(turns - earlier) < 1e-6 && tag >= start ? waiting[earlier] : undefined;
        if (equal !== undefined && equal.arrivedMs <= arrivedMs) count++;
      }
      return count;
    },

    inOrder() {
      const tagged: { entry: T; tag: number }[] = [];
      for (const line of heap.items) {
        line.waiting.forEach((entry, index) => {
          tagged.push({ entry, tag: line.start + index / line.weight });
        });
      }
      return tagged
        .sort((a, b) => a.tag - b.tag || a.entry.arrivedMs - b.entry.arrivedMs)
        .map(({ entry }) => entry);
    },

    longest() {
      let longest: Line<T> | undefined;
      for (const line of heap.items) {
        if (longest === undefined || line.waiting.length > longest.waiting.length) longest = line;
      }
      const entry = longest?.waiting.at(-1);
      return entry === undefined ? undefined : { entry, length: longest?.waiting.length ?? 0 };
    },

    *lines() {
      for (const line of heap.items) {
        const oldest = line.waiting[0] as T;
        yield { name: line.name, length: line.waiting.length, oldestMs: oldest.arrivedMs };
      }
    },
  };
}

/** What waits, in turns of its own weight. */
function load<T>(line: Line<T>): number {
  return line.waiting.length / line.weight;
}
