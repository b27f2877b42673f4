/** What is known of a key since its first 401, and what follows from it. No I/O, no clock. */
import type { AcceptedReads, KeyRead } from './accepted-reads.ts';
import { isSpecified, specifiedReads } from './accepted-reads.ts';
import type { Key } from './key.ts';

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
type Accepted = Pick<AcceptedReads, 'isEmpty' | 'has' | 'latest'>;

/** What speaks against the key. */
export type Evidence = Pick<Suspicion, 'refused' | 'proof' | 'isRepeated' | 'isAsked' | 'isDue'>;

/** `wait`: more is to come. `leave`: the 401 was about the operation, as far as is known. */
export type Finding = 'wait' | 'leave' | 'try-other' | 'reject';

/** What follows from what is known. @param hasOther another key can be tried */
export function judgeSuspicion(it: Evidence, accepted: Accepted, hasOther: boolean): Finding {
  if (!it.isDue) return 'wait';
  const proven = isProven(it, accepted);
  const isOnlyRepeated = it.isAsked && it.isRepeated && accepted.isEmpty;
  if ((proven || isOnlyRepeated) && hasOther) return 'try-other';
  if (proven) return 'reject';
  return it.isAsked ? 'leave' : 'wait';
}

/** Whether two operations were refused, and no read is left that may well be accepted. */
export function isProven({ proof, isAsked, isDue, refused }: Evidence, accepted: Accepted): boolean {
  if (proof !== undefined) return isAsked && !specifiedReads.some(({ operation }) => accepted.has(operation));
  return (isAsked || isDue) && refused.size > 1 && accepted.isEmpty;
}

/** The reads to check the key with. The one that says most about the key comes first: the one that was accepted last. */
export function readsToAsk(it: Pick<Suspicion, 'refused' | 'proof' | 'earlier'>, accepted: Accepted) {
  const first = it.proof ?? accepted.latest ?? it.earlier;
  const specified = specifiedReads.filter(({ operation }) => !it.refused.has(operation));
  const reads = [...(first === undefined ? [] : [first]), ...specified, ...it.refused.values()];
  return reads.filter(
    ({ path, query }, at) => reads.findIndex((read) => read.path === path && read.query === query) === at,
  );
}

/** Whether the key may still be accepted for this read of the specification. */
export function mayClear({ refused, proof }: Pick<Suspicion, 'refused' | 'proof'>, read: KeyRead): boolean {
  return isSpecified(read) && !refused.has(read.operation) && read.operation !== proof?.operation;
}
