/**
 * The gate's record as it travels between gateways: plain numbers, whose times are counted from the moment of writing.
 * Pure: times come in.
 */
import { settleDown } from '../gate/pacer.ts';
import { type GateRecord, learnRate, openRecord } from '../gate/scheduler.ts';
import { tuning } from '../gate/tuning.ts';
import type { GateState } from '../gate/types.ts';
import { parseWindows, type SharedWindows } from './shared-windows.ts';

const amounts = ['perMs', 'crowd', 'crowdMs', 'unstatedMs', 'exploreIntervalMs'] as const;
const spans = ['closedForMs', 'statedForMs', 'exploreInMs'] as const;

export type SharedRecord = Readonly<Record<(typeof amounts)[number] | (typeof spans)[number], number>> & {
  readonly state: GateState;
  readonly isMeasured: boolean;
  readonly level: number;
  /** When the level was as it says; below zero in the past. */
  readonly levelInMs: number;
  /** Of a told limit, what all gateways have used; left out where none is told, and between two looks at it. */
  readonly windows?: SharedWindows | undefined;
};

/** @param sent attempts so far: what the 429s of a cooldown tell is told at once */
export function writeRecord(record: GateRecord, sent: number, nowMs: number): SharedRecord {
  const plain = record.state === 'closed' ? learnRate(record, sent) : settleDown(record, nowMs);
  return {
    ...pick(amounts, (name) => plain[name]),
    state: record.state,
    isMeasured: plain.isMeasured,
    level: plain.level,
    levelInMs: plain.levelMs - nowMs,
    closedForMs: Math.max(plain.closedUntilMs - nowMs, 0),
    statedForMs: Math.max(plain.statedUntilMs - nowMs, 0),
    exploreInMs: Math.max(plain.exploreMs - nowMs, 0),
  };
}

/**
 * The record as one's own. A new stretch of the measurement begins with it, for what the writer has sent is not known.
 *
 * @param sent attempts so far
 * @param writtenMs when it was written
 */
export function readRecord(shared: SharedRecord, sent: number, writtenMs: number, nowMs: number): GateRecord {
  if (shared.state === 'open') return openRecord;
  const { closedForMs, statedForMs, exploreInMs, levelInMs, windows: _, ...same } = shared;
  return {
    ...openRecord,
    ...same,
    levelMs: writtenMs + levelInMs,
    closedUntilMs: writtenMs + closedForMs,
    statedUntilMs: statedForMs > 0 ? writtenMs + statedForMs : 0,
    exploreMs: writtenMs + exploreInMs,
    emptyMs: nowMs,
    closedMs: nowMs,
    marks: [{ atMs: nowMs, sent }],
  };
}

/** What one of several gateways may use while each works by itself. */
export function shareOf(record: GateRecord, share: number): GateRecord {
  const { perMs, crowd, level } = record;
  return { ...record, perMs: perMs * share, crowd: Math.max(crowd * share, 1), level: level * share };
}

/** The record of all, closed for as long as this gateway was told to wait. */
export function withCooldown(record: GateRecord, own: GateRecord, nowMs: number): GateRecord {
  const isClosed = record.state === 'paced' && own.closedUntilMs > nowMs;
  return {
    ...record,
    state: isClosed ? 'closed' : record.state,
    closedUntilMs: Math.max(record.closedUntilMs, own.closedUntilMs),
    statedUntilMs: Math.max(record.statedUntilMs, own.statedUntilMs),
  };
}

/** So long without a 429 that nothing may be limited any more. */
export function isStale({ closedForMs, statedForMs }: SharedRecord, ageMs: number): boolean {
  return !(ageMs <= Math.max(closedForMs, statedForMs) + tuning.quietMs);
}

/** Longer than any gate is closed and any wait is stated; no sum of such times is lost to rounding. */
export const longestMs = 2 ** 32;
/** Faster than any upstream. */
const mostPerMs = 1e6;

/** Nothing that was read from the store is trusted. */
export function parseRecord(value: unknown): SharedRecord | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const given = value as Record<string, unknown>;
  const { state, level, levelInMs, perMs } = given;
  if (state !== 'open' && state !== 'closed' && state !== 'half-open' && state !== 'paced') return undefined;
  if (![...amounts, ...spans].every((name) => isWithin(given[name], 0, longestMs))) return undefined;
  if (![level, levelInMs].every((one) => isWithin(one, -longestMs, longestMs))) return undefined;
  if (!isWithin(perMs, state === 'open' ? 0 : 1e-9, mostPerMs)) return undefined;
  const windows = parseWindows(given['windows']);
  const rest = {
    state,
    isMeasured: given['isMeasured'] === true,
    level,
    levelInMs,
    ...(windows && { windows }),
  } as SharedRecord;
  return { ...pick([...amounts, ...spans], (name) => given[name] as number), ...rest };
}

export function isWithin(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && value >= least && value <= most;
}

function pick<N extends string>(names: readonly N[], of: (name: N) => number): Record<N, number> {
  return Object.fromEntries(names.map((name) => [name, of(name)])) as Record<N, number>;
}
