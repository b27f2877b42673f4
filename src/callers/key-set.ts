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
  /** The keys can't be fetched; told once until they can be again (`undefined`). */
  onTrouble(error: unknown): void;
}

export interface KeySet {
  /** Finds the key of a signature, as jose asks for it. @throws KeySetUnavailableError */
  keyFor(header: JWSHeaderParameters, token: FlattenedJWSInput): Promise<CryptoKey>;
  /**
   * Whether what was verified before may stand without asking again. Starts a refresh in the background in good
   * time, so that a set in steady use never makes a request wait.
   */
  isCurrent(): boolean;
  /** Fetches the keys before anybody needs them. */
  warm(): void;
}

const refreshAfterMs = 5 * 60_000;
/** Older keys are asked for again before they are believed: this is how long a removed key may live on. */
const staleAfterMs = 10 * 60_000;
/** How long the last keys serve while the issuer can't be reached. */
const maxOutageMs = 24 * 3_600_000;
const attemptEveryMs = 30_000;
/** Without any keys, nobody gets in: then we try more often. */
const firstAttemptEveryMs = 2_000;

export function openKeySet({ address, onChange, onTrouble }: KeySetOptions): KeySet {
  let keys: ReturnType<typeof createLocalJWKSet> | undefined;
  let text = '';
  let fetchedMs = Number.NEGATIVE_INFINITY;
  let attemptedMs = Number.NEGATIVE_INFINITY;
  let flight: Promise<void> | undefined;
  let isTroubled = false;

  async function fetchOnce(): Promise<void> {
    try {
      const fetched = await fetchKeySet(address);
      if (fetched !== text) {
        let set: ReturnType<typeof createLocalJWKSet>;
        try {
          set = createLocalJWKSet(JSON.parse(fetched));
        } catch {
          throw new Error('the answer is not a key set');
        }
        const isFirst = keys === undefined;
        keys = set;
        text = fetched;
        if (!isFirst) onChange();
      }
      fetchedMs = performance.now();
      if (isTroubled) onTrouble(undefined);
      isTroubled = false;
    } catch (error) {
      if (!isTroubled) onTrouble(error);
      isTroubled = true;
    } finally {
      flight = undefined;
    }
  }

  /** One attempt at a time, and not too often. Never rejects: whoever waits looks at the keys afterwards. */
  function refresh(): Promise<void> {
    if (flight !== undefined) return flight;
    const gapMs = keys === undefined ? firstAttemptEveryMs : attemptEveryMs;
    if (performance.now() - attemptedMs < gapMs) return Promise.resolve();
    attemptedMs = performance.now();
    flight = fetchOnce();
    return flight;
  }

  const ageMs = () => performance.now() - fetchedMs;

  return {
    async keyFor(header, token) {
      if (ageMs() > staleAfterMs) await refresh();
      if (keys === undefined || ageMs() > maxOutageMs) {
        throw new KeySetUnavailableError(`the keys at ${address} can't be had`);
      }
      const before = keys;
      try {
        return await before(header, token);
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
        await refresh();
        if (keys === before) throw error;
        return keys(header, token);
      }
    },
    isCurrent() {
      const age = ageMs();
      if (age > refreshAfterMs) void refresh();
      if (age <= staleAfterMs) return true;
      // An outage: what was verified stands while the next attempt is not due.
      return age <= maxOutageMs && flight === undefined && performance.now() - attemptedMs < attemptEveryMs;
    },
    warm() {
      void refresh();
    },
  };
}
