/**
 * Limits what forged JWTs cost: signatures are verified one at a time, and a JWT counts as a failure of its address from
 * its first signature until it is found good. One that waits for keys or for its turn is not counted: a thousand good
 * logins in one second are no failures.
 */
import { countFailure, type FailureKind, type Failures } from './failures.ts';

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

/** The verification of one JWT. It may take several signatures, for callers can trust different keys. */
export class SignatureCheck {
  readonly #turns: SignatureTurns;
  readonly #failures: Failures;
  readonly #remoteAddress: string | undefined;
  #endTurn: (() => void) | undefined;
  #isCounted = false;

  constructor(turns: SignatureTurns, failures: Failures, remoteAddress: string | undefined) {
    this.#turns = turns;
    this.#failures = failures;
    this.#remoteAddress = remoteAddress;
  }

  /**
   * Gets the key for a signature, and then waits for the turn to verify it, which lasts until the next key or the end.
   *
   * @throws GatewayError `caller-rate-limited` where the address is over its limit; what `findKey` throws
   */
  async begin<Key>(findKey: () => Promise<Key>): Promise<Key> {
    this.#endTurn?.();
    const key = await findKey();
    this.#endTurn = await this.#turns.take();
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
      else if (this.#isCounted) this.#failures.giveBack(this.#remoteAddress, 'signature');
    } finally {
      this.#endTurn?.();
    }
  }

  #count(kind: FailureKind, reason: string): void {
    if (this.#isCounted) return;
    countFailure(this.#failures, this.#remoteAddress, kind, reason);
    this.#isCounted = true;
  }
}
