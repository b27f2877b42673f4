/**
 * The public keys of an issuer: fetched when first needed, refreshed while in use, kept through an outage of the
 * issuer. A caller can't drive traffic there: whatever key ids it makes up, one attempt per 30 s.
 */

import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import {
  createLocalJWKSet,
  errors,
  type FlattenedJWSInput,
  type JSONWebKeySet,
  type JWSHeaderParameters,
} from 'jose';
import { connectionFault, errorCode } from '../errors.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';

/** The keys can't be had, so nothing can be said about the token. */
export class KeySetUnavailableError extends Error {
  override readonly name = 'KeySetUnavailableError';
}

export interface KeySetOptions {
  readonly address: string;
  /** Where connections leave the network, where not by themselves. */
  readonly proxy: OutboundProxy | undefined;
  /** The keys differ from those before: what was verified with those must be forgotten. */
  onChange(): void;
  /**
   * The keys can't be fetched; called once, and with `undefined` when they can be again.
   *
   * @param hasKeys some were fetched before
   */
  onFailureChange(error: unknown, hasKeys: boolean): void;
}

/** A key set as status shows it. Times are wall clock, in ms since 1970. */
export interface KeySetSnapshot {
  readonly address: string;
  /** Keys that can verify a signature; `undefined` where the set was never fetched. */
  readonly keys: number | undefined;
  /** Why the set cannot be fetched, while it cannot. */
  readonly failure: string | undefined;
  readonly failingSince: number | undefined;
  /** How long the last keys serve without the issuer; `undefined` where there are none. */
  readonly servesUntil: number | undefined;
}

const refreshAfterMs = 5 * 60_000;
/** Older keys are asked for again before they are believed: this is how long a removed key may live on. */
const staleAfterMs = 10 * 60_000;
/** How long the last keys serve while the issuer can't be reached. */
const maxOutageMs = 24 * 3_600_000;
const attemptEveryMs = 30_000;
/** Without any keys no JWT can be verified: then attempts come more often. */
const firstAttemptEveryMs = 2_000;

interface Keys {
  readonly find: ReturnType<typeof createLocalJWKSet>;
  readonly count: number;
}

export class KeySet {
  readonly #options: KeySetOptions;
  #keys: Keys | undefined;
  #text = '';
  #fetchedMs = Number.NEGATIVE_INFINITY;
  #attemptedMs = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  /** While the keys can't be fetched: why, and since when (wall clock, ms). */
  #failing: { readonly failure: string; readonly since: number } | undefined;
  /** The next attempt while they can't: a set that no login asks for is seen to be back. */
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: KeySetOptions) {
    this.#options = options;
  }

  /**
   * Finds the key of a signature, as jose asks for it.
   *
   * @param waits waits for keys that are fetched
   * @throws KeySetUnavailableError; what `waits` throws
   */
  async keyFor(
    header: JWSHeaderParameters,
    token: FlattenedJWSInput,
    waits: (refreshed: Promise<void>) => Promise<void>,
  ): Promise<CryptoKey> {
    if (this.#ageMs() > staleAfterMs) await waits(this.#refresh());
    const before = this.#keys;
    if (before === undefined || this.#ageMs() > maxOutageMs) {
      throw new KeySetUnavailableError(`the keys at ${this.#options.address} can't be had`);
    }
    try {
      return await before.find(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      await waits(this.#refresh());
      const after = this.#keys;
      if (after === undefined || after === before) throw error;
      return await after.find(header, token);
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

  snapshot(): KeySetSnapshot {
    const servesForMs = maxOutageMs - this.#ageMs();
    return {
      address: this.#options.address,
      keys: this.#keys?.count,
      failure: this.#failing?.failure,
      failingSince: this.#failing?.since,
      servesUntil: this.#keys === undefined ? undefined : Date.now() + servesForMs,
    };
  }

  /** No caller names the set any more. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
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
    const { address, proxy, onFailureChange } = this.#options;
    try {
      this.#adopt(await fetchKeySet(address, proxy));
      this.#fetchedMs = performance.now();
      if (this.#failing !== undefined) onFailureChange(undefined, true);
      this.#failing = undefined;
    } catch (error) {
      if (this.#failing === undefined) onFailureChange(error, this.#keys !== undefined);
      this.#failing = {
        failure: describeKeySetFailure(error),
        since: this.#failing?.since ?? Date.now(),
      };
      this.#tryAgainLater();
    } finally {
      this.#running = undefined;
    }
  }

  #tryAgainLater(): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#refresh(), attemptEveryMs);
    this.#timer.unref();
  }

  #adopt(text: string): void {
    if (text === this.#text) return;
    const isFirst = this.#keys === undefined;
    this.#keys = parseKeys(text);
    this.#text = text;
    if (!isFirst) this.#options.onChange();
  }
}

/** One look at a key set, as `check` takes it. @throws Error that says what was wrong */
export async function countKeysAt(address: string, proxy: OutboundProxy | undefined): Promise<number> {
  return parseKeys(await fetchKeySet(address, proxy)).count;
}

function parseKeys(text: string): Keys {
  try {
    const set = JSON.parse(text) as JSONWebKeySet;
    const find = createLocalJWKSet(set);
    return { find, count: set.keys.filter(({ kty, use = 'sig' }) => kty !== 'oct' && use === 'sig').length };
  } catch {
    throw new Error('the answer is not a key set');
  }
}

const maxKeySetBytes = 256 * 1024;
const keySetTimeoutMs = 5_000;

/** Why a key set cannot be had, in words for status and `check`. */
export function describeKeySetFailure(error: unknown): string {
  const code = errorCode(error);
  const [, words] = connectionFault(code ?? '') ?? [];
  if (words !== undefined) return `its server ${words}`;
  if (code !== undefined) return `it failed with ${code}`;
  return error instanceof Error ? error.message : 'it failed';
}

/**
 * Fetches the text of a key set: 200 and nothing else (a redirect could lead anywhere), bounded in size and time. The
 * address is from the callers file; nothing of a caller is in the request.
 *
 * @throws Error that says what was wrong, without any text of the answer
 */
function fetchKeySet(address: string, proxy: OutboundProxy | undefined): Promise<string> {
  return new Promise((resolve, reject) => {
    const url = new URL(address);
    const get = url.protocol === 'https:' ? getHttps : getHttp;
    const headers = { accept: 'application/jwk-set+json, application/json', 'accept-encoding': 'identity' };
    // Verified whatever an environment variable says.
    const agent = proxy?.takes(url) ? proxy.agent : false;
    const request = get(url, { headers, agent, rejectUnauthorized: true }, onResponse);
    const timer = setTimeout(() => {
      request.destroy(new Error(`the key set did not come within ${keySetTimeoutMs} ms`));
    }, keySetTimeoutMs);
    timer.unref();

    function fail(error: Error): void {
      clearTimeout(timer);
      reject(error);
    }

    function onResponse(response: IncomingMessage): void {
      response.on('error', fail);
      if (response.statusCode !== 200) {
        request.destroy(new Error(`the key set's address answered ${response.statusCode}`));
        return;
      }
      const parts: Buffer[] = [];
      let bytes = 0;
      response.on('data', (part: Buffer) => {
        bytes += part.length;
        if (bytes > maxKeySetBytes)
          request.destroy(new Error(`the key set has more than ${maxKeySetBytes} bytes`));
        else parts.push(part);
      });
      response.on('end', () => {
        clearTimeout(timer);
        // A truncated body never gets here as a success: Node reports it as an error.
        resolve(Buffer.concat(parts).toString('utf8'));
      });
    }

    request.on('error', fail);
    // Also where Node reports no error: an answer of 101 ends the connection without one.
    request.on('close', () => fail(new Error('the connection ended before the key set')));
  });
}
