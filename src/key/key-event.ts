/** What happens to the key, as the log is given it: one event for each change, fit to be printed as it is. */

import type { Key } from './key.ts';

export type KeyEventKind =
  | 'loaded'
  | 'rotated'
  | 'accepted'
  | 'new-key-refused'
  | 'new-key-untried'
  | 'reload-failed'
  | 'reload-recovered'
  | 'previous-failed'
  | 'waiting'
  | 'gave-up'
  | 'rejected'
  | 'accepted-again'
  | 'operation-refused'
  | 'fell-back'
  | 'went-back'
  | 'leak';

export interface KeyEvent {
  readonly kind: KeyEventKind;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly source: string;
  readonly fingerprint?: string;
  readonly generation?: number;
  /** Why, where something failed. Ours, without any value. */
  readonly reason?: string;
}

/** Makes an event of a change; the source is added: the key's, or the store's where a read failed. */
export type EmitKeyEvent = (
  kind: KeyEventKind,
  level: KeyEvent['level'],
  message: string,
  key?: Key,
  reason?: string,
) => void;

/** A key of the store that is not in use yet. */
export interface NewKeyHealth {
  readonly fingerprint: string;
  readonly generation: number;
  /** `untried`: the upstream has said nothing about it yet. */
  readonly standing: 'untried' | 'refused';
  /** When the store gave it. */
  readonly since: string;
}

/** The key's part of `/status`; `beside` is for verdict and metrics alone. */
export interface KeyHealth {
  readonly loaded: boolean;
  readonly source: string;
  readonly fingerprint: string | null;
  readonly generation: number | null;
  readonly loadedAt: string | null;
  readonly ageSeconds: number | null;
  readonly lastAcceptedAt: string | null;
  readonly lastRejectedAt: string | null;
  /** The upstream refuses the key and nothing but checks is sent with it. */
  readonly rejected: boolean;
  /** The upstream refuses the newest key of the store, and another one is in use. */
  readonly fallenBack: boolean;
  /** The store's newest key, while it is on trial; null where it is in use. */
  readonly newKey: NewKeyHealth | null;
  /** Reads of the store that failed, since the start. */
  readonly reloadFailures: number;
  /** Why the last read failed, while it fails. */
  readonly reloadFailure: string | null;
  readonly beside: {
    /** The upstream refused a read, and it is not known yet whether it refuses the key. */
    readonly suspect: boolean;
    /** Until the last replaced value is searched for no more; null where there is none. */
    readonly previousForgottenInSeconds: number | null;
  };
}
