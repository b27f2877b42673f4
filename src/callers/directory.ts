/**
 * Recognises callers. The one place that decides who somebody is; what they may do stands on the `Caller`.
 *
 * A static token is recognised without a promise: its digest is looked up in a map. Whatever is wrong with a
 * credential, the work and the answer are the same; the log alone knows more.
 */
import type { KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { GatewayError } from '../errors.ts';
import type { Eventually } from '../layer.ts';
import type { Credentials, Recognised } from './caller.ts';
import { CallersFileError } from './callers-file.ts';
import { readCallersFile } from './callers-file-policy.ts';
import { presentedCredential } from './credential-policy.ts';
import { limitFailures } from './failures.ts';
import { errorCode } from './file-edit.ts';
import { type FileWatch, watchFile } from './file-watch.ts';
import { flyKeyFile, readFlyKey, recogniseFly } from './fly.ts';
import type { JwtRecogniser, JwtRefusal } from './jwt.ts';
import { anonymousRoster, type EnrolledToken, makeRoster, type Roster } from './roster.ts';
import { describeUnknownToken, digestOf, mayBeToken, tokenPrefix } from './token.ts';

/** What whoever runs the gateway should read in its log. */
export type DirectoryEvent =
  | { readonly kind: 'reloaded'; readonly callers: number }
  /** A new version of the file has problems; the version before it stays in force. */
  | { readonly kind: 'version-refused'; readonly problems: readonly string[] }
  /** The file can't be read; the version before stays in force. */
  | { readonly kind: 'file-unreadable'; readonly cause: unknown }
  | { readonly kind: 'file-readable-again' }
  /** A caller still uses a token that has a newer one beside it. At most once an hour for each token. */
  | { readonly kind: 'older-token-used'; readonly caller: string; readonly token: string }
  /** The keys of an issuer can't be fetched: the last ones serve for a day, new callers wait. Told once. */
  | { readonly kind: 'keys-unavailable'; readonly address: string; readonly cause: unknown }
  | { readonly kind: 'keys-available-again'; readonly address: string };

export interface DirectoryOptions {
  /** CALLERS_FILE; left out, only an anonymous caller exists. */
  readonly file?: string | undefined;
  /** The public listener is loopback or a Unix socket. */
  readonly loopbackOnly: boolean;
  /** CALLER_FAILURES_PER_MINUTE; 0 for no limit. */
  readonly failuresPerMinute: number;
  /** The names that may be granted. */
  readonly operations: ReadonlySet<string>;
  /** Lower-case names of the fields that go up: no credential may be in one of them. */
  readonly forwardedHeaders?: ReadonlySet<string>;
  /** The key of Fly's proxy, for tests; `/.fly/fly-src.pub` where left out. */
  readonly flyKeyFile?: string;
  onEvent(event: DirectoryEvent): void;
}

export interface DirectorySnapshot {
  /** How many callers there are; as many of them as were asked for are in the list. */
  readonly count: number;
  readonly callers: readonly {
    readonly name: string;
    readonly operations: readonly string[] | 'every';
    readonly weight: number;
    /** The ways to be this caller, as `token`, `jwt`. */
    readonly by: readonly string[];
    readonly tokens: readonly { readonly token: string; readonly expires: string | undefined }[];
  }[];
  /** Wall clock, ms: when the version in force was read. */
  readonly loadedAt: number;
  /** What is wrong with the newest version of the file, where that was refused. */
  readonly problems: readonly string[];
}

export interface Directory {
  /**
   * Says who sent the request.
   * @throws GatewayError `caller-unauthenticated`, or `caller-rate-limited` after too many failures (a rejection
   * where a JWT had to be verified)
   */
  recognise(credentials: Credentials): Eventually<Recognised>;
  /** The credential in a request's fields, whether or not it is a good one; `undefined` where there is none. */
  credentialOf(rawHeaders: readonly string[]): string | undefined;
  /** Somebody without a credential may be a caller: then the Host and Origin checks have to hold. */
  readonly admitsAnonymous: boolean;
  /** Lower-case names of the fields, besides Authorization, that carry a JWT for some caller. */
  readonly credentialHeaders: readonly string[];
  /** @param most how many callers to describe: thousands take a while, and hits wait meanwhile */
  snapshot(most?: number): DirectorySnapshot;
  /** Reads the file again at once, changed or not: what is beside it, as Fly's key, may have changed. */
  reload(): void;
  close(): void;
}

const remindEveryMs = 3_600_000;
const challenge = 'Bearer realm="analytics-gateway"';

/** Enrolled tokens whose value was seen: strong enough to be one. An equal digest is an equal value. */
const proven = new WeakSet<EnrolledToken>();

/** Whether the value behind a digest is no guess. Looked at once for each token, not with each request. */
function isProven(token: EnrolledToken, value: string): boolean {
  if (proven.has(token)) return true;
  if (!mayBeToken(value)) return false;
  proven.add(token);
  return true;
}

/** Opens the directory of callers. @throws CallersFileError with every problem of the file */
export function openDirectory(options: DirectoryOptions): Directory {
  const { file, onEvent } = options;
  if (file === undefined && !options.loopbackOnly) {
    throw new CallersFileError([
      'without a callers file, the gateway may listen only on loopback or a Unix socket',
    ]);
  }
  const failures = limitFailures(options.failuresPerMinute);
  let roster: Roster = anonymousRoster();
  let problems: readonly string[] = [];
  let loadedAt = Date.now();
  let reminders = new Map<string, number>();
  let flyKey: KeyObject | undefined;
  let jwt: JwtRecogniser | undefined;
  let jwtLoading: Promise<JwtRecogniser> | undefined;
  const verifying = new Map<string, Promise<Recognised | JwtRefusal>>();

  async function importJwt(): Promise<JwtRecogniser> {
    const { recogniseJwts } = await import('./jwt.ts');
    // The rules of the version in force now, which may be a newer one than asked for this.
    jwt = recogniseJwts({
      rules: roster.jwt,
      onTrouble: (address, cause) => {
        onEvent(
          cause === undefined
            ? { kind: 'keys-available-again', address }
            : { kind: 'keys-unavailable', address, cause },
        );
      },
    });
    return jwt;
  }

  /** Imported once; an import that failed (no file descriptor was free) is tried again for the next JWT. */
  function loadJwt(): Promise<JwtRecogniser> {
    jwtLoading ??= importJwt().finally(() => {
      jwtLoading = undefined;
    });
    return jwtLoading;
  }

  /** Takes a version of the file as a whole, or leaves everything as it is and says what is wrong. */
  function adopt(text: string): readonly string[] {
    const reading = readCallersFile(text, options);
    if (reading.problems.length > 0) return reading.problems;
    const next = makeRoster(reading.entries);
    if (next.fly.length > 0) {
      const keyFile = options.flyKeyFile ?? flyKeyFile;
      try {
        flyKey = readFlyKey(keyFile);
      } catch {
        const index = reading.entries.findIndex(({ fly }) => fly !== undefined);
        return [`callers[${index}].fly: ${keyFile} can't be read as a key: this is not a Fly machine`];
      }
    }
    roster = next;
    problems = [];
    loadedAt = Date.now();
    reminders = new Map();
    if (jwt !== undefined) jwt.adopt(roster.jwt);
    // A failure is left to the first request that comes with a JWT.
    else if (roster.jwt.length > 0) loadJwt().catch(() => {});
    return [];
  }

  function onText(text: string, isSecondLook: boolean): boolean {
    const wrong = adopt(text);
    if (wrong.length === 0) {
      onEvent({ kind: 'reloaded', callers: roster.callers.length });
      return true;
    }
    if (isSecondLook) {
      problems = wrong;
      onEvent({ kind: 'version-refused', problems });
    }
    return false;
  }

  function onTrouble(cause: unknown): void {
    onEvent(cause === undefined ? { kind: 'file-readable-again' } : { kind: 'file-unreadable', cause });
  }

  let watch: FileWatch | undefined;
  if (file !== undefined) {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (cause) {
      throw new CallersFileError([`the callers file can't be read (${errorCode(cause) ?? 'unknown error'})`]);
    }
    const wrong = adopt(text);
    if (wrong.length > 0) throw new CallersFileError(wrong);
    watch = watchFile({ file, text, onText, onTrouble });
  }

  function refuseFor(retryAfterMs: number, reason: string): never {
    throw new GatewayError('caller-rate-limited', {
      reason: `too many failed authentications from this address; this one: ${reason}`,
      detail: 'Too many requests from this address had no valid credential.',
      retryAfterMs,
    });
  }

  /** The same answer for every credential that fails; why is for the log. */
  function refuse(credentials: Credentials, reason: string, wasPresented: boolean, isCounted = true): never {
    const retryAfterMs = isCounted ? failures.count(credentials.remoteAddress) : 0;
    if (retryAfterMs > 0) refuseFor(retryAfterMs, reason);
    throw new GatewayError('caller-unauthenticated', {
      reason,
      // RFC 6750 section 3.1: an error code only where something was presented.
      headers: { 'www-authenticate': wasPresented ? `${challenge}, error="invalid_token"` : challenge },
    });
  }

  function remind(token: EnrolledToken, now: number): void {
    const last = reminders.get(token.digest);
    if (last !== undefined && now - last < remindEveryMs && now >= last) return;
    reminders.set(token.digest, now);
    onEvent({
      kind: 'older-token-used',
      caller: token.recognised.caller.name,
      token: token.digest.slice(0, 8),
    });
  }

  /** One verification, counted as a failure of its address while it runs, and given back unless it is one. */
  async function verifyCounted(
    { remoteAddress }: Credentials,
    header: string,
    digest: string,
    value: string,
  ): Promise<Recognised | JwtRefusal> {
    let isFailure = false;
    try {
      const result = await (jwt ?? (await loadJwt())).verify(header, digest, value);
      isFailure = 'reason' in result && !result.isOurs;
      return result;
    } finally {
      if (!isFailure) failures.giveBack(remoteAddress);
    }
  }

  /** Requests with the same JWT share one verification. An address over its limit is refused before it. */
  async function verifyJwt(
    credentials: Credentials,
    header: string,
    digest: string,
    value: string,
  ): Promise<Recognised> {
    const name = `${header} ${digest}`;
    const shared = verifying.get(name);
    let running = shared;
    if (running === undefined) {
      const retryAfterMs = failures.count(credentials.remoteAddress);
      if (retryAfterMs > 0) refuseFor(retryAfterMs, 'a JWT, not verified');
      running = verifyCounted(credentials, header, digest, value).finally(() => verifying.delete(name));
      verifying.set(name, running);
    }
    const result = await running;
    if (!('reason' in result)) return result;
    return refuse(credentials, result.reason, true, shared !== undefined && !result.isOurs);
  }

  function recogniseToken(
    credentials: Credentials,
    value: string,
    header: string | undefined,
  ): Eventually<Recognised> {
    const digest = digestOf(value);
    const isStatic = header === undefined || header === 'authorization';
    const enrolled = isStatic ? roster.tokens.get(digest) : undefined;
    const token = enrolled !== undefined && isProven(enrolled, value) ? enrolled : undefined;
    const now = Date.now();
    if (token === undefined) {
      if (
        header === undefined ||
        !roster.jwt.some(({ rule }) => rule.header === header) ||
        !value.includes('.')
      ) {
        return refuse(credentials, describeUnknownToken(value), true);
      }
      return jwt?.recall(header, digest) ?? verifyJwt(credentials, header, digest, value);
    }
    if (now >= token.expiresAt) {
      const { caller } = token.recognised;
      return refuse(credentials, `an expired token (${digest.slice(0, 8)}) of ${caller.name}`, true);
    }
    if (token.isOlder) remind(token, now);
    return token.recognised;
  }

  function recogniseMachine(credentials: Credentials, source: string, signature: string): Recognised {
    const { remoteAddress } = credentials;
    const result =
      flyKey === undefined
        ? { reason: 'Fly-Src without a key to check it' }
        : recogniseFly(flyKey, roster.fly, { source, signature, remoteAddress });
    return 'reason' in result ? refuse(credentials, result.reason, true) : result;
  }

  return {
    recognise(credentials) {
      // Without a callers file, whatever credentials somebody sends are ignored.
      if (file === undefined && roster.anonymous !== undefined) return roster.anonymous;
      const presented = presentedCredential(credentials.rawHeaders, roster.fields);
      switch (presented.kind) {
        case 'token':
          return recogniseToken(
            credentials,
            presented.value,
            presented.isBearer ? 'authorization' : undefined,
          );
        case 'assertion':
          return recogniseToken(credentials, presented.value, presented.header);
        case 'fly':
          return recogniseMachine(credentials, presented.source, presented.signature);
        case 'none':
          if (roster.anonymous !== undefined) return roster.anonymous;
          return refuse(
            credentials,
            credentials.target.includes(tokenPrefix)
              ? 'a token in the URL, where it never counts'
              : 'no credential',
            false,
          );
        case 'malformed':
          return refuse(credentials, presented.reason, true);
      }
    },
    credentialOf(rawHeaders) {
      const presented = presentedCredential(rawHeaders, roster.fields);
      return 'value' in presented ? presented.value : undefined;
    },
    get admitsAnonymous() {
      return roster.anonymous !== undefined;
    },
    get credentialHeaders() {
      return roster.fields.assertions;
    },
    snapshot: (most = roster.callers.length) => ({
      count: roster.callers.length,
      callers: roster.callers.slice(0, most).map((caller, index) => {
        const entry = roster.entries[index];
        const by = (['jwt', 'fly'] as const).filter((way) => entry?.[way] !== undefined) as string[];
        if ((entry?.tokens.length ?? 0) > 0) by.unshift('token');
        if (roster.anonymous?.caller === caller) by.push('anonymous');
        return {
          name: caller.name,
          operations: caller.operations === 'every' ? 'every' : [...caller.operations],
          weight: caller.weight,
          by,
          tokens: (entry?.tokens ?? []).map(({ digest, expiresAt }) => ({
            token: digest.slice(0, 8),
            expires: Number.isFinite(expiresAt) ? new Date(expiresAt).toISOString() : undefined,
          })),
        };
      }),
      loadedAt,
      problems,
    }),
    reload: () => watch?.readNow(),
    close: () => watch?.close(),
  };
}
