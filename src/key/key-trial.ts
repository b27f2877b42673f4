/**
 * The trial of a new key, while the one in use works: a read of the gateway's own says whether the upstream accepts it,
 * before a caller's read goes up with it.
 *
 * | new key | the upstream answers | then |
 * |---|---|---|
 * | untried | 2xx, 304, 403 | it is taken into use |
 * | untried | 401 | it is refused: the key in use stays, and the verdict says so |
 * | untried | 429, 5xx, nothing … | it stays untried: that says nothing about a key |
 * | refused | as above | a key may be activated after it was stored |
 *
 * It is tried again after 1 s, 2 s, 4 s and so on, at most every minute, each time behind the gate like any read. No time
 * ends a trial: the key in use works, and an untried key replaces it at once where it is refused (`keyring.ts`).
 */

import { toTime } from '../exchange/figures.ts';
import { waitAtMost } from '../exchange/request-context.ts';
import type { Key } from './key.ts';
import type { EmitKeyEvent, NewKeyHealth } from './key-event.ts';
import type { KeyCheck } from './key-monitor.ts';
import { checkDelayMs, checkLimitMs, judgeTrial, specifiedReads } from './suspicion.ts';

export interface KeyTrialParts {
  readonly check: KeyCheck;
  /** The upstream accepts the key: takes it into use. */
  take(key: Key): void;
  readonly emit: EmitKeyEvent;
}

interface Trial {
  readonly key: Key;
  /** Wall clock, in ms since 1970. */
  readonly since: number;
  standing: NewKeyHealth['standing'];
  reads: number;
  /** Reads since the last reason to try at once: the delays grow with them. */
  readsInARow: number;
  isAsking: boolean;
  timer: NodeJS.Timeout | undefined;
  /** Aborts when the trial ends, whichever way. */
  readonly over: AbortController;
}

export class KeyTrial {
  readonly #parts: KeyTrialParts;
  #trial: Trial | undefined;

  constructor(parts: KeyTrialParts) {
    this.#parts = parts;
  }

  /** The new key; `undefined` where none is on trial. */
  get key(): Key | undefined {
    return this.#trial?.key;
  }

  get isRefused(): boolean {
    return this.#trial?.standing === 'refused';
  }

  /** Tries this key instead of the one before. */
  begin(key: Key): void {
    this.end();
    this.#trial = {
      key,
      since: Date.now(),
      standing: 'untried',
      reads: 0,
      readsInARow: 0,
      isAsking: false,
      timer: undefined,
      over: new AbortController(),
    };
    void this.#ask(this.#trial);
  }

  /** Does not wait for the next time: the upstream may have changed its mind. */
  tryNow(): void {
    if (this.#trial === undefined) return;
    this.#trial.readsInARow = 0;
    void this.#ask(this.#trial);
  }

  /** The key is in use by now, or not wanted any more. */
  end(): void {
    clearTimeout(this.#trial?.timer);
    this.#trial?.over.abort();
    this.#trial = undefined;
  }

  health(): NewKeyHealth | null {
    if (this.#trial === undefined) return null;
    const { key, standing, since } = this.#trial;
    return { fingerprint: key.fingerprint, generation: key.generation, standing, since: toTime(since) };
  }

  async #ask(trial: Trial): Promise<void> {
    if (trial.isAsking) return;
    trial.isAsking = true;
    clearTimeout(trial.timer);
    // The read whose 200 confirms a key. Where it does not work at all, the other one of the specification has a say too.
    const read = specifiedReads[trial.reads % specifiedReads.length] ?? specifiedReads[0];
    trial.reads++;
    trial.readsInARow++;
    const asked = this.#parts.check(trial.key, read).catch(() => undefined);
    const late = waitAtMost(checkLimitMs, trial.over.signal).then(() => undefined);
    const status = await Promise.race([asked, late]);
    if (trial.over.signal.aborted) return;
    trial.isAsking = false;
    const finding = judgeTrial(status);
    if (finding === 'accepted') {
      this.#parts.take(trial.key);
      return;
    }
    if (finding === 'refused') this.#refuse(trial);
    else if (trial.reads === 1) this.#sayUntried(trial, status);
    trial.timer = setTimeout(() => void this.#ask(trial), checkDelayMs(trial.readsInARow));
    trial.timer.unref();
  }

  #refuse(trial: Trial): void {
    if (trial.standing === 'refused') return;
    trial.standing = 'refused';
    const message = 'The upstream refuses the new key; the one before stays in use';
    this.#parts.emit('new-key-refused', 'error', message, trial.key);
  }

  #sayUntried({ key }: Trial, status: number | undefined): void {
    const message = 'The new key could not be tried yet, and is tried again; the one before stays in use';
    const reason = status === undefined ? 'the upstream gave no answer' : `the upstream answered ${status}`;
    this.#parts.emit('new-key-untried', 'warn', message, key, reason);
  }
}
