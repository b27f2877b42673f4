/**
 * Callers by JWT, from the request's side: requests that share a verification, and the address that it is counted for.
 * The verification itself is in `jwt.ts`, which is loaded only where a caller has `jwt`: it brings jose with it.
 */
import type { OutboundProxy } from '../exchange/proxy.ts';
import type { Authenticated, CallersEvent } from './caller.ts';
import {
  countFailure,
  type Failures,
  forbidden,
  KeyWaits,
  type SharedChecks,
  SignatureCheck,
  SignatureTurns,
  unauthenticated,
} from './failures.ts';
import type { JwtRefusal, JwtRules, JwtVerifier } from './jwt.ts';
import type { KeySetSnapshot } from './key-set.ts';

export interface JwtLoginsOptions {
  readonly failures: Failures;
  readonly proxy: OutboundProxy | undefined;
  /** The rules of the version in force now. */
  rules(): JwtRules;
  onEvent(event: CallersEvent): void;
}

export class JwtLogins {
  readonly #options: JwtLoginsOptions;
  readonly #running = new Map<string, Promise<Authenticated | JwtRefusal>>();
  readonly #checks: SharedChecks;
  #verifier: JwtVerifier | undefined;
  #loading: Promise<JwtVerifier> | undefined;
  #isClosed = false;

  constructor(options: JwtLoginsOptions) {
    this.#options = options;
    this.#checks = { turns: new SignatureTurns(), waits: new KeyWaits(), failures: options.failures };
    this.onVersion();
  }

  /** Another version of the callers file is in force: its rules decide, also for what is being verified. */
  onVersion(): void {
    const rules = this.#options.rules();
    if (this.#verifier !== undefined) this.#verifier.adopt(rules);
    // A failure is left to the first request that comes with a JWT.
    else if (rules.length > 0) this.#load().catch(() => {});
  }

  /** The issuers' keys; none before the first rule is in force. */
  keySets(): readonly KeySetSnapshot[] {
    return this.#verifier?.keySets() ?? [];
  }

  close(): void {
    this.#isClosed = true;
    this.#verifier?.close();
  }

  /** What is remembered of a JWT, without a promise; `undefined` where it has to be verified. */
  recall(header: string, digest: string): Authenticated | undefined {
    return this.#verifier?.recall(header, digest);
  }

  /**
   * Verifies a JWT. Requests with the same one from the same address share one verification.
   *
   * @throws GatewayError `caller-unauthenticated`; `caller-forbidden` for a valid JWT of no caller; `caller-rate-limited`, before a signature is verified, where the
   * address is over its limit
   */
  authenticate(
    header: string,
    digest: string,
    value: string,
    remoteAddress: string | undefined,
  ): Promise<Authenticated> {
    const name = `${header} ${digest} ${remoteAddress}`;
    const shared = this.#running.get(name);
    let running = shared;
    if (running === undefined) {
      running = this.#verifyCounted(header, digest, value, remoteAddress).finally(() =>
        this.#running.delete(name),
      );
      this.#running.set(name, running);
    }
    return this.#resultOf(running, shared !== undefined, remoteAddress);
  }

  /** Without the JWT: a thousand requests that wait with one large JWT keep it once. */
  async #resultOf(
    running: Promise<Authenticated | JwtRefusal>,
    isShared: boolean,
    remoteAddress: string | undefined,
  ): Promise<Authenticated> {
    const result = await running;
    if (!('reason' in result)) return result;
    // The verification was counted for the request that began it.
    if (isShared && !result.isNoFailure)
      countFailure(this.#options.failures, remoteAddress, 'token', result.reason);
    throw result.isForbidden ? forbidden(result.reason) : unauthenticated(result.reason, true);
  }

  /** Counted as a failure of its address while a signature is verified, and given back unless it is one. */
  async #verifyCounted(
    header: string,
    digest: string,
    value: string,
    remoteAddress: string | undefined,
  ): Promise<Authenticated | JwtRefusal> {
    const check = new SignatureCheck(this.#checks, remoteAddress);
    let failure: string | undefined;
    try {
      const verifier = this.#verifier ?? (await this.#load());
      const result = await verifier.verify(header, digest, value, check);
      if ('reason' in result && !result.isNoFailure) failure = result.reason;
      return result;
    } finally {
      check.end(failure);
    }
  }

  /** Imported once. An import that failed (no file descriptor was free) is tried again for the next JWT. */
  #load(): Promise<JwtVerifier> {
    this.#loading ??= this.#import().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  async #import(): Promise<JwtVerifier> {
    const { JwtVerifier } = await import('./jwt.ts');
    const { onEvent, rules, proxy } = this.#options;
    this.#verifier = new JwtVerifier({
      proxy,
      // Of the version in force now, which may be newer than the one that asked for this.
      rules: rules(),
      onFailureChange: (address, cause, hasKeys) => {
        onEvent(
          cause === undefined
            ? { kind: 'keys-available-again', address }
            : { kind: 'keys-unavailable', address, hasKeys, cause },
        );
      },
    });
    if (this.#isClosed) this.#verifier.close();
    return this.#verifier;
  }
}
