/**
 * What gateways tell each other of turns at the upstream. One of them leads: its scheduler queues the requests of all
 * and gives the turns. Messages are sealed, and checked on reading: another version may have written them.
 */

import type { Flow } from '../exchange/request-context.ts';
import type { Outcome } from '../gate/scheduler.ts';
import {
  isWithin,
  longestMs,
  parseRecord,
  parseWindows,
  type SharedRecord,
  type SharedWindows,
} from './shared-record.ts';

/** A flow as text: what a turn is given to. */
export type FlowKey = string;

/** From the leader to all. */
export interface Announcement {
  readonly kind: 'announcement';
  /** When it took the lead, by the store's clock: a later leader has a higher one. */
  readonly term: number;
  readonly from: string;
  readonly record: SharedRecord;
  /** It leads no longer. */
  readonly resigns: boolean;
  /** Turns by the ids of gateways, each with a number that only grows. */
  readonly turns: Readonly<Record<string, readonly (readonly [number: number, flow: FlowKey])[]>>;
  /** The last report that it has read of each gateway. */
  readonly heard: Readonly<Record<string, number>>;
  /** Of each gateway: its waiting requests, as a share of all that go before the last of them. */
  readonly shares: Readonly<Record<string, number>>;
}

/** From another gateway to the leader. */
export interface Report {
  readonly kind: 'report';
  readonly term: number;
  readonly from: string;
  /** The leader's id. */
  readonly to: string;
  readonly number: number;
  /** The last turn that it took: those after it are not in `waiting` yet. */
  readonly seen: number;
  /** It names all that wait and all that is in flight, and not only what has changed. */
  readonly isFull: boolean;
  readonly waiting: readonly (readonly [flow: FlowKey, count: number])[];
  /** Turns in flight; of a full report alone. */
  readonly inFlight: readonly number[];
  readonly ended: readonly (readonly [number: number, outcome: Outcome])[];
  /** 429s of attempts that had no turn of the leader's: whose, sent how long ago, and the stated wait in ms or 0. */
  readonly throttled: readonly (readonly [flow: FlowKey, agoMs: number, waitMs: number])[];
  /** Attempts that it had sent freely before it followed. */
  readonly sentBefore: number;
  /** Of a told limit, what it has used by itself since it last heard of all; until the leader has heard it. */
  readonly alone?: SharedWindows | undefined;
}

/** What is to be done with the lease in the store. */
export interface LeaseCall {
  /**
   * `take`: it is wanted, or held and renewed. `seize`: whichever gateway it names says nothing. `release`: given back,
   * what is known goes with it.
   */
  readonly wants: 'take' | 'seize' | 'look' | 'release';
  /** In which this gateway leads already: a lease that was lost is taken again in the same term. */
  readonly term?: number | undefined;
  /** For gateways that come later. */
  readonly record: SharedRecord | undefined;
}

export interface Outgoing {
  readonly announcement?: Announcement | undefined;
  readonly report?: Report | undefined;
  readonly lease?: LeaseCall | undefined;
}

/** What the store says of the lease. */
export interface LeaseState {
  /** `undefined` where no gateway has it. */
  readonly holder: string | undefined;
  readonly term: number;
  readonly record: SharedRecord | undefined;
  /** How long ago the record was written. */
  readonly ageMs: number;
}

/** Who decides on this gateway's turns. */
export type GateRole = 'alone' | 'leads' | 'follows';

export interface SharedGateSnapshot {
  readonly role: GateRole;
  /** The id of the gateway that leads; null while none does, as where nothing is limited. */
  readonly leader: string | null;
  /** Turns that this gateway gave to others, and got from others, since the start. */
  readonly turnsGiven: number;
  readonly turnsTaken: number;
}

/** A message that took longer is of no use: its turns are given back by then, and its leader counts as silent. */
const oldestMs = 1_000;
const sendersKept = 256;

/** Tells messages that are new from those that another program repeats: sealed once, they can be sent again. */
export class HeardMessages {
  readonly #last = new Map<string, number>();

  /**
   * @param sentMs when it was sent, by the store's clock
   * @param sequence a number that only rises, of each sender
   * @param nowMs the store's time; `undefined` where it is not known
   */
  isNew(from: string, sentMs: unknown, sequence: unknown, nowMs: number | undefined): boolean {
    if (nowMs === undefined || !isCount(sequence)) return false;
    if (!isWithin(sentMs, nowMs - oldestMs, nowMs + oldestMs)) return false;
    if (sequence <= (this.#last.get(from) ?? -1)) return false;
    // The one that was heard of longest ago goes first: what it has sent is too old by then.
    this.#last.delete(from);
    this.#last.set(from, sequence);
    for (const oldest of this.#last.keys()) if (this.#last.size > sendersKept) this.#last.delete(oldest);
    return true;
  }
}

export function flowKey({ name, weight, background }: Flow): FlowKey {
  return JSON.stringify([name, weight, background]);
}

/** `undefined` for what no gateway has written. */
export function parseFlow(key: FlowKey): Flow | undefined {
  try {
    const [name, weight, background] = JSON.parse(key) as unknown[];
    if (typeof name !== 'string' || typeof background !== 'boolean') return undefined;
    return isWithin(weight, 0.001, 1e6) ? { name, weight, background } : undefined;
  } catch {
    return undefined;
  }
}

export function parseMessage(text: string): Announcement | Report | undefined {
  try {
    const value = JSON.parse(text) as Record<string, unknown>;
    if (!isCount(value['term']) || typeof value['from'] !== 'string') return undefined;
    return value['kind'] === 'announcement' ? parseAnnouncement(value) : parseReport(value);
  } catch {
    return undefined;
  }
}

function parseAnnouncement(value: Record<string, unknown>): Announcement | undefined {
  const record = parseRecord(value['record']);
  const { turns, heard, shares } = value;
  if (record === undefined || !isTable(turns) || !isTable(heard) || !isTable(shares)) return undefined;
  const isTurn = (turn: unknown): boolean => isPair(turn) && isCount(turn[0]) && typeof turn[1] === 'string';
  if (!Object.values(turns).every((list) => isListOf(list, isTurn))) return undefined;
  if (!Object.values(heard).every(isCount)) return undefined;
  if (!Object.values(shares).every((share) => isWithin(share, 1e-9, 1))) return undefined;
  return { ...(value as unknown as Announcement), record, resigns: value['resigns'] === true };
}

function parseReport(value: Record<string, unknown>): Report | undefined {
  const isWaiting = (one: unknown): boolean => isPair(one) && typeof one[0] === 'string' && isCount(one[1]);
  const isEnded = (one: unknown): boolean => isPair(one) && isCount(one[0]) && isOutcome(one[1]);
  const isThrottled = (one: unknown): boolean =>
    Array.isArray(one) && typeof one[0] === 'string' && isMs(one[1]) && isMs(one[2]);
  const isReport =
    value['kind'] === 'report' &&
    [value['number'], value['seen'], value['sentBefore']].every(isCount) &&
    isListOf(value['waiting'], isWaiting) &&
    isListOf(value['inFlight'], isCount) &&
    isListOf(value['ended'], isEnded) &&
    isListOf(value['throttled'], isThrottled);
  if (!isReport) return undefined;
  const alone = parseWindows(value['alone']);
  return { ...(value as unknown as Report), isFull: value['isFull'] === true, alone };
}

function isOutcome(value: unknown): boolean {
  if (value === 'answered' || value === 'broken' || value === 'failed' || value === 'unused') return true;
  return isTable(value) && (value['waitMs'] === undefined || isMs(value['waitMs']));
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOf(value: unknown, isOne: (one: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(isOne);
}

function isPair(value: unknown): value is [unknown, unknown] {
  return Array.isArray(value) && value.length === 2;
}

function isCount(value: unknown): value is number {
  return isWithin(value, 0, Number.MAX_SAFE_INTEGER);
}

function isMs(value: unknown): boolean {
  return isWithin(value, 0, longestMs);
}
