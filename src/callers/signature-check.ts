/**
 * Limits what forged JWTs cost: signatures are verified one at a time, and a JWT counts as a failure of its address from
 * its first signature until it is found good. One that waits for keys or for its turn is not counted: a thousand good
 * logins in one second are no failures.
 */
import { GatewayError } from '../errors.ts';
import { FairShare } from '../exchange/fair-share.ts';
import { failureScope } from '../http/address.ts';
import { countFailure, type FailureKind, type Failures } from './failures.ts';

/** What JWTs that wait for keys take together. An ordinary one has a thousand bytes, the largest sixteen thousand. */
const maxWaitingBytes = 4 * 2 ** 20;
/** What waits besides the text. */
const bytesBesides = 512;

interface Waiting {
  held: number;
  readonly own: 0;
}

/**
 * Bounds the JWTs that wait for the keys of their issuer, which may be slow, with a share for each address. One whose keys
 * are there waits for none and is not counted.
 */
export class KeyWaits {
  readonly #shares = new FairShare<Waiting>();
  readonly #addresses = new Map<string, Waiting>();

  /** @throws GatewayError `overloaded` where the address has its share waiting already */
  async during(remoteAddress: string | undefined, token: string, keys: Promise<void>): Promise<void> {
    const scope = failureScope(remoteAddress);
    const bytes = token.length + bytesBesides;
    const address: Waiting = this.#addresses.get(scope) ?? { held: 0, own: 0 };
    if (!this.#shares.mayHold(address, address.held + bytes, maxWaitingBytes)) {
      const reason = 'too many logins wait for the keys of their issuer';
      const detail = 'Too many logins wait to be verified, for the keys of their issuer are slow to come.';
      throw new GatewayError('overloaded', { retryAfterMs: 1_000, reason, detail });
    }
    this.#addresses.set(scope, address);
    this.#shares.join(address);
    address.held += bytes;
    try {
      await keys;
    } finally {
      address.held -= bytes;
      if (address.held === 0) {
        this.#shares.leave(address);
        this.#addresses.delete(scope);
      }
    }
  }
}

/** A mutex: lets one verification in after the other. */
export class SignatureTurns {
  #last: Promise<void> = Promise.resolve();

  /** Waits for a turn. @returns how to end it */
  async take(): Promise<() => void> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    return resolve;
  }
}

/** What all verifications share. */
export interface SharedChecks {
  readonly turns: SignatureTurns;
  readonly waits: KeyWaits;
  readonly failures: Failures;
}

/** The verification of one JWT. It may take several signatures, for callers can trust different keys. */
export class SignatureCheck {
  readonly #shared: SharedChecks;
  readonly #remoteAddress: string | undefined;
  #endTurn: (() => void) | undefined;
  #isCounted = false;

  constructor(shared: SharedChecks, remoteAddress: string | undefined) {
    this.#shared = shared;
    this.#remoteAddress = remoteAddress;
  }

  /** Waits until keys have been fetched. @throws GatewayError `overloaded` where too many wait */
  waitForKeys(token: string, keys: Promise<void>): Promise<void> {
    return this.#shared.waits.during(this.#remoteAddress, token, keys);
  }

  /**
   * Gets the key for a signature, and then waits for the turn to verify it, which lasts until the next key or the end.
   *
   * @throws GatewayError `caller-rate-limited` where the address is over its limit; what `findKey` throws
   */
  async begin<Key>(findKey: () => Promise<Key>): Promise<Key> {
    this.#endTurn?.();
    const key = await findKey();
    this.#endTurn = await this.#shared.turns.take();
    this.#count('signature', 'a JWT, not verified');
    return key;
  }

  /**
   * Call once, whatever the outcome: the next turn begins.
   *
   * @param failure why the JWT is refused; `undefined` where that is not its caller's fault
   * @throws GatewayError `caller-rate-limited` where it is a failure and the address is over its limit
   */
  end(failure: string | undefined): void {
    try {
      // One that was refused before any signature was verified cost no more than a token.
      if (failure !== undefined) this.#count('token', failure);
      else if (this.#isCounted) this.#shared.failures.giveBack(this.#remoteAddress, 'signature');
    } finally {
      this.#endTurn?.();
    }
  }

  #count(kind: FailureKind, reason: string): void {
    if (this.#isCounted) return;
    countFailure(this.#shared.failures, this.#remoteAddress, kind, reason);
    this.#isCounted = true;
  }
}
