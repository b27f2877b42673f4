/**
 * Authenticates callers: the one place that decides who sent a request. What the caller may do stands on the
 * `Caller`.
 *
 * A static token needs no promise: its digest is looked up in a map. Whatever is wrong with a credential, the work
 * and the answer are the same; the log alone knows more.
 */
import type { Eventually } from '../exchange/layer.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';
import type { Authenticated, Caller, Credentials } from './caller.ts';
import { CallerStore, type CallerStoreOptions, type CallerToken } from './caller-store.ts';
import {
  type CallersSnapshot,
  endingSoon,
  expiriesOf,
  nameEnding,
  snapshotCallers,
} from './callers-snapshot.ts';
import { presentedCredential, presentedValues } from './credential.ts';
import { countFailure, type Failures, limitFailures, unauthenticated } from './failures.ts';
import { authenticateFly } from './fly.ts';
import { JwtLogins } from './jwt-logins.ts';
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
    const ending = endingSoon(expiriesOf(this.#store.version.table), Date.now());
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
