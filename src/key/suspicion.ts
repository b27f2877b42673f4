/** What is known of a key since its first 401, what follows from it, and when. No I/O, no clock. */
import type { Key } from './key.ts';

/** A read that can be asked again, to see whether the key is accepted. */
export interface KeyRead {
  readonly operation: string;
  readonly path: string;
  readonly query: string;
}

/** "A 200 confirms a key", as the specification has it of the first. A key that one of them accepts is not rejected. */
export const specifiedReads: readonly [KeyRead, KeyRead] = [
  { operation: 'list-api-keys', path: '/users/api-keys/', query: '' },
  { operation: 'list-accounts', path: '/analytics/accounts/', query: '' },
];

export function isSpecified({ operation }: KeyRead): boolean {
  return specifiedReads.some((read) => read.operation === operation);
}

/** A new key may reach the store just after the upstream began to refuse the old one: how long requests wait for it. */
export const rotationWaitMs = 2_000;
/** How long a store is waited for before the upstream is asked; a command that fetches from afar takes longer. */
export const headStartMs = 250;
/** How long an operation whose 401 was not about the key is not held against the key again. */
export const exemptionMs = 60_000;
/** How long one check is waited for before the next read is asked too; four begin within the wait for a rotation. */
export const checkWaitMs = 550;
/** When, after a refusal, another read is asked where the first was refused again: late, for most rotations come before. */
export const secondCheckMs = 1_200;
/** After this long a check has no answer. */
export const checkLimitMs = 15_000;

/** How long to wait before the next check of a rejected key, after so many. */
export function checkDelayMs(checksDone: number): number {
  return Math.min(1_000 * 2 ** Math.max(0, checksDone - 1), 60_000);
}

/** 2xx and 304 prove the key; so does 403, which the specification gives to a valid key without the role. */
export function isAcceptance(status: number): boolean {
  return (status >= 200 && status < 300) || status === 304 || status === 403;
}

/** What the upstream's answer to a new key says of it; `undefined` is no answer. */
export function judgeTrial(status: number | undefined): 'accepted' | 'refused' | 'unknown' {
  if (status === 401) return 'refused';
  return status !== undefined && isAcceptance(status) ? 'accepted' : 'unknown';
}

/** What is known since a refusal. */
export interface Suspicion {
  readonly key: Key;
  readonly sinceMs: number;
  /** What was refused: of each operation a read that was accepted before, where there was one. */
  readonly refused: Map<string, KeyRead>;
  /** Among them one that was accepted before. */
  earlier: KeyRead | undefined;
  /** A refused read of another operation than the first one: it is the key. */
  proof: KeyRead | undefined;
  /** An operation that was refused was refused once more. */
  isRepeated: boolean;
  /** All checks have said what they could. */
  isAsked: boolean;
  /** The wait for a rotation is over. */
  isDue: boolean;
  /** How to make another key, which was not tried yet. */
  other: (() => Key) | undefined;
  /** The other key, being tried: adopted when the upstream accepts it. */
  candidate: Key | undefined;
  /** Checks of the rejected key so far. */
  checks: number;
  timer: NodeJS.Timeout | undefined;
  /** Aborts when the suspicion ends, whichever way. */
  readonly over: AbortController;
}

export function newSuspicion(key: Key, sinceMs: number): Suspicion {
  return {
    key,
    sinceMs,
    refused: new Map(),
    earlier: undefined,
    proof: undefined,
    isRepeated: false,
    isAsked: false,
    isDue: false,
    other: undefined,
    candidate: undefined,
    checks: 0,
    timer: undefined,
    over: new AbortController(),
  };
}

/** The reads that the upstream accepted with the key and has not refused since. */
interface Accepted {
  readonly isEmpty: boolean;
  /** Of all operations the last. */
  readonly latest: KeyRead | undefined;
  has(operation: string): boolean;
}

/** What speaks against the key. */
export type Evidence = Pick<Suspicion, 'refused' | 'proof' | 'isRepeated' | 'isAsked' | 'isDue'>;

/** `wait`: more is to come. `leave`: the 401 was about the operation, as far as is known. */
export type Finding = 'wait' | 'leave' | 'try-other' | 'reject';

/** What follows from what is known. @param hasOther another key can be tried */
export function judgeSuspicion(evidence: Evidence, accepted: Accepted, hasOther: boolean): Finding {
  if (!evidence.isDue) return 'wait';
  const proven = isProven(evidence, accepted);
  const isOnlyRepeated = evidence.isAsked && evidence.isRepeated && accepted.isEmpty;
  if ((proven || isOnlyRepeated) && hasOther) return 'try-other';
  if (proven) return 'reject';
  return evidence.isAsked ? 'leave' : 'wait';
}

/** Whether two operations were refused, and no read is left that may well be accepted. */
export function isProven({ proof, isAsked, isDue, refused }: Evidence, accepted: Accepted): boolean {
  if (proof !== undefined) return isAsked && !specifiedReads.some(({ operation }) => accepted.has(operation));
  return (isAsked || isDue) && refused.size > 1 && accepted.isEmpty;
}

/** The reads to check the key with. The one that says most about the key comes first: the one that was accepted last. */
export function readsToAsk(
  { proof, earlier, refused }: Pick<Suspicion, 'refused' | 'proof' | 'earlier'>,
  accepted: Accepted,
) {
  const first = proof ?? accepted.latest ?? earlier;
  const specified = specifiedReads.filter(({ operation }) => !refused.has(operation));
  const reads = [...(first === undefined ? [] : [first]), ...specified, ...refused.values()];
  return reads.filter(
    ({ path, query }, at) => reads.findIndex((read) => read.path === path && read.query === query) === at,
  );
}

/** Whether the key may still be accepted for this read of the specification. */
export function mayClear({ refused, proof }: Pick<Suspicion, 'refused' | 'proof'>, read: KeyRead): boolean {
  return isSpecified(read) && !refused.has(read.operation) && read.operation !== proof?.operation;
}
