/**
 * The public keys of an issuer: fetched when first needed, refreshed while in use, kept through an outage of the
 * issuer. A caller can't drive traffic there: whatever key ids it makes up, one attempt per 30 s.
 */
import { createLocalJWKSet, errors, type FlattenedJWSInput, type JWSHeaderParameters } from 'jose';
import { fetchKeySet } from './key-set-fetch.ts';

/** The keys can't be had, so nothing can be said about the token. */
export class KeySetUnavailableError extends Error {
  override readonly name = 'KeySetUnavailableError';
}

export interface KeySetOptions {
  readonly address: string;
  /** The keys differ from those before: what was verified with those must be forgotten. */
  onChange(): void;
  /**
   * The keys can't be fetched; called once, and with `undefined` when they can be again.
   *
   * @param hasKeys some were fetched before
   */
  onFailureChange(error: unknown, hasKeys: boolean): void;
}

const refreshAfterMs = 5 * 60_000;
/** Older keys are asked for again before they are believed: this is how long a removed key may live on. */
const staleAfterMs = 10 * 60_000;
/** How long the last keys serve while the issuer can't be reached. */
const maxOutageMs = 24 * 3_600_000;
const attemptEveryMs = 30_000;
/** Without any keys no JWT can be verified: then attempts come more often. */
const firstAttemptEveryMs = 2_000;

type Keys = ReturnType<typeof createLocalJWKSet>;

export class KeySet {
  readonly #options: KeySetOptions;
  #keys: Keys | undefined;
  #text = '';
  #fetchedMs = Number.NEGATIVE_INFINITY;
  #attemptedMs = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  #isFailing = false;

  constructor(options: KeySetOptions) {
    this.#options = options;
  }

  /** Finds the key of a signature, as jose asks for it. @throws KeySetUnavailableError */
  async keyFor(header: JWSHeaderParameters, token: FlattenedJWSInput): Promise<CryptoKey> {
    if (this.#ageMs() > staleAfterMs) await this.#refresh();
    const before = this.#keys;
    if (before === undefined || this.#ageMs() > maxOutageMs) {
      throw new KeySetUnavailableError(`the keys at ${this.#options.address} can't be had`);
    }
    try {
      return await before(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await this.#refresh();
      const after = this.#keys;
      if (after === undefined || after === before) throw error;
      return after(header, token);
    }
  }

  /**
   * Whether what was verified before may stand without asking again. Starts a refresh in the background in good
   * time, so that a set in steady use never makes a request wait.
   */
  isCurrent(): boolean {
    const age = this.#ageMs();
    if (age > refreshAfterMs) void this.#refresh();
    if (age <= staleAfterMs) return true;
    // An outage: what was verified stands while the next attempt is not due.
    return (
      age <= maxOutageMs &&
      this.#running === undefined &&
      performance.now() - this.#attemptedMs < attemptEveryMs
    );
  }

  /** Fetches the keys before a request needs them. */
  warm(): void {
    void this.#refresh();
  }

  #ageMs(): number {
    return performance.now() - this.#fetchedMs;
  }

  /** One attempt at a time, and not too often. Never rejects: the keys show afterwards how it went. */
  #refresh(): Promise<void> {
    if (this.#running !== undefined) return this.#running;
    const gapMs = this.#keys === undefined ? firstAttemptEveryMs : attemptEveryMs;
    if (performance.now() - this.#attemptedMs < gapMs) return Promise.resolve();
    this.#attemptedMs = performance.now();
    this.#running = this.#fetchKeys();
    return this.#running;
  }

  async #fetchKeys(): Promise<void> {
    const { address, onFailureChange } = this.#options;
    try {
      this.#adopt(await fetchKeySet(address));
      this.#fetchedMs = performance.now();
      if (this.#isFailing) onFailureChange(undefined, true);
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) onFailureChange(error, this.#keys !== undefined);
      this.#isFailing = true;
    } finally {
      this.#running = undefined;
    }
  }

  #adopt(text: string): void {
    if (text === this.#text) return;
    const isFirst = this.#keys === undefined;
    this.#keys = parseKeys(text);
    this.#text = text;
    if (!isFirst) this.#options.onChange();
  }
}

function parseKeys(text: string): Keys {
  try {
    return createLocalJWKSet(JSON.parse(text));
  } catch {
    throw new Error('the answer is not a key set');
  }
}
