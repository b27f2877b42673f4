/**
 * Authenticates callers: the one place that decides who sent a request. What the caller may do stands on the
 * `Caller`.
 *
 * A static token needs no promise: its digest is looked up in a map. Whatever is wrong with a credential, the work
 * and the answer are the same; the log alone knows more. A JWT is verified in `jwt.ts`, which is loaded only where a caller
 * has `jwt`: it brings jose with it.
 */

import type { Eventually } from '../exchange/layer.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';
import type { Authenticated, Caller, CallersEvent, Credentials } from './caller.ts';
import { CallerStore, type CallerStoreOptions, type CallerToken } from './caller-store.ts';
import {
  type CallersSnapshot,
  endingSoon,
  listExpiries,
  nameEnding,
  snapshotCallers,
} from './callers-snapshot.ts';
import { presentedCredential, presentedValues } from './credential.ts';
import {
  countFailure,
  type Failures,
  forbidden,
  KeyWaits,
  limitFailures,
  type SharedChecks,
  SignatureCheck,
  SignatureTurns,
  unauthenticated,
} from './failures.ts';
import { authenticateFly } from './fly.ts';
import type { JwtRefusal, JwtRules, JwtVerifier } from './jwt.ts';
import type { KeySetSnapshot } from './key-set.ts';
import { describeUnknownToken, digestOf, mayBeToken, tokenPrefix } from './token.ts';

export interface AuthenticatorOptions extends CallerStoreOptions {
  /** CALLER_FAILURES_PER_MINUTE; 0 for no limit. */
  readonly failuresPerMinute: number;
  /** Where connections to issuers leave the network, where not by themselves. */
  readonly proxy?: OutboundProxy | undefined;
}

const remindEveryMs = 3_600_000;
const tellEveryMs = 86_400_000;

/** Tokens of the file whose value was seen: strong enough to be one. An equal digest is an equal value. */
const proven = new WeakSet<CallerToken>();

/** Whether the value behind a digest is no guess. Looked at once for each token, not with each request. */
function isProven(token: CallerToken, value: string): boolean {
  if (proven.has(token)) return true;
  if (!mayBeToken(value)) return false;
  proven.add(token);
  return true;
}

export class Authenticator {
  readonly #options: AuthenticatorOptions;
  readonly #store: CallerStore;
  readonly #failures: Failures;
  readonly #jwt: JwtLogins;
  readonly #daily: NodeJS.Timeout;
  /** Digest of an older token to when its use was reported, wall clock, ms. */
  readonly #reminders = new Map<string, number>();

  /** @throws CallersFileError with every problem of the file */
  constructor(options: AuthenticatorOptions) {
    this.#options = options;
    this.#failures = limitFailures(options.failuresPerMinute);
    this.#store = new CallerStore(options, () => {
      this.#reminders.clear();
      this.#jwt.onVersion();
    });
    this.#jwt = new JwtLogins({
      failures: this.#failures,
      proxy: options.proxy,
      rules: () => this.#store.version.table.jwt,
      onEvent: options.onEvent,
    });
    this.#tellEnding();
    this.#daily = setInterval(() => this.#tellEnding(), tellEveryMs).unref();
  }

  #tellEnding(): void {
    const ending = endingSoon(listExpiries(this.#store.version.table), Date.now());
    if (ending.length > 0) this.#options.onEvent({ kind: 'tokens-ending', ...nameEnding(ending) });
  }

  /** The caller of a request without a credential; `undefined` where such a request is refused. */
  get anonymous(): Caller | undefined {
    return this.#store.version.table.anonymous?.caller;
  }

  /** An anonymous caller exists: then the Host and Origin checks have to hold. */
  get admitsAnonymous(): boolean {
    return this.#store.version.table.anonymous !== undefined;
  }

  /** Lower-case names of the fields, besides Authorization, that carry a JWT for some caller. */
  get credentialHeaders(): readonly string[] {
    return this.#store.version.table.fields.assertions;
  }

  /**
   * Says who sent the request.
   *
   * @throws GatewayError `caller-unauthenticated`, or `caller-rate-limited` after too many failures (a rejection
   * where a JWT has to be verified)
   */
  authenticate(credentials: Credentials): Eventually<Authenticated> {
    const { anonymous, fields } = this.#store.version.table;
    // Without a callers file, credentials are ignored.
    if (this.#options.file === undefined && anonymous !== undefined) return anonymous;
    const presented = presentedCredential(credentials.rawHeaders, fields);
    switch (presented.kind) {
      case 'token':
        return this.#byToken(credentials, presented.value, presented.isBearer ? 'authorization' : undefined);
      case 'assertion':
        return this.#byToken(credentials, presented.value, presented.header);
      case 'fly':
        return this.#byFly(credentials, presented.source, presented.signature);
      case 'malformed':
        return this.#refuse(credentials, presented.reason);
      case 'none':
        return anonymous ?? this.#refuseNone(credentials);
    }
  }

  /** The credentials in a request's fields, good ones or not. */
  credentialsOf(rawHeaders: readonly string[]): readonly string[] {
    return presentedValues(rawHeaders, this.credentialHeaders);
  }

  snapshot(most?: number): CallersSnapshot {
    return snapshotCallers(this.#store, this.#jwt.keySets(), most);
  }

  /** Reads the file again at once, changed or not. */
  reload(): void {
    this.#store.reload();
  }

  close(): void {
    clearInterval(this.#daily);
    this.#store.close();
    this.#jwt.close();
  }

  /** @param header the field it came in, lower case; `undefined` for X-API-Key, which carries no JWT */
  #byToken(credentials: Credentials, value: string, header: string | undefined): Eventually<Authenticated> {
    const { tokens, jwt } = this.#store.version.table;
    const digest = digestOf(value);
    const isStatic = header === undefined || header === 'authorization';
    const found = isStatic ? tokens.get(digest) : undefined;
    if (found !== undefined) {
      if (isProven(found, value)) return this.#byStaticToken(credentials, found);
      const { name } = found.authenticated.caller;
      return this.#refuse(credentials, `a weak or damaged token of ${name}: make one with "token create"`);
    }
    if (header === undefined || !value.includes('.') || !jwt.some(({ rule }) => rule.header === header)) {
      return this.#refuse(credentials, describeUnknownToken(value));
    }
    return (
      this.#jwt.recall(header, digest) ?? this.#jwt.authenticate(header, digest, value, credentials.peer)
    );
  }

  #byStaticToken(credentials: Credentials, token: CallerToken): Authenticated {
    const now = Date.now();
    if (now >= token.expiresAt) {
      const { name } = token.authenticated.caller;
      return this.#refuse(credentials, `an expired token (${token.digest.slice(0, 8)}) of ${name}`);
    }
    token.usedAt = now;
    if (token.isOlder) this.#remind(token, now);
    return token.authenticated;
  }

  #byFly(credentials: Credentials, source: string, signature: string): Authenticated {
    const { flyKey, table } = this.#store.version;
    if (flyKey === undefined) return this.#refuse(credentials, 'Fly-Src without a key to check it');
    const { remoteAddress } = credentials;
    const result = authenticateFly(flyKey, table.fly, { source, signature, remoteAddress });
    return 'reason' in result ? this.#refuse(credentials, result.reason) : result;
  }

  #refuse({ peer }: Credentials, reason: string): never {
    countFailure(this.#failures, peer, 'token', reason);
    throw unauthenticated(reason, true);
  }

  #refuseNone({ peer, target }: Credentials): never {
    const reason = target.includes(tokenPrefix)
      ? 'a token in the URL, where it never counts'
      : 'no credential';
    countFailure(this.#failures, peer, 'no-credential', reason);
    throw unauthenticated(reason, false);
  }

  #remind({ digest, authenticated }: CallerToken, now: number): void {
    const last = this.#reminders.get(digest);
    if (last !== undefined && now - last < remindEveryMs && now >= last) return;
    this.#reminders.set(digest, now);
    this.#options.onEvent({
      kind: 'older-token-used',
      caller: authenticated.caller.name,
      token: digest.slice(0, 8),
    });
  }
}

interface JwtLoginsOptions {
  readonly failures: Failures;
  readonly proxy: OutboundProxy | undefined;
  /** The rules of the version in force now. */
  rules(): JwtRules;
  onEvent(event: CallersEvent): void;
}

/** Callers by JWT, from the request's side: requests that share a verification, and the address that it is counted for. */
class JwtLogins {
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
