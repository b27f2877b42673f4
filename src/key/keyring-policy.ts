/** The times of a key's life. Pure: no `this`, no I/O, no clock. */

/** A new key may reach the store just after the upstream began to refuse the old one: how long requests wait for it. */
export const rotationWaitMs = 2_000;
/** How long a store is waited for before the upstream is asked; a command that fetches from afar takes longer. */
export const headStartMs = 250;
/** How long a key that was replaced is still searched for in answers and log lines, at the least. */
export const retiredKeyMs = 10 * 60_000;
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
