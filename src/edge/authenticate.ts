/**
 * What the edge does with credentials: it authenticates the caller before anything is looked up (a cache hit is
 * authorised like everything else), counts for the caller's own limit, and finds credentials in the wrong place.
 */
import type { Authenticator } from '../callers/authenticator.ts';
import type { Authenticated } from '../callers/caller.ts';
import { holdsCredential, leastCharacters } from '../callers/credential.ts';
import { type CallerLimits, rateLimitFields } from '../callers/limit.ts';
import { GatewayError, type ProblemCode } from '../errors.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import { CallerLeft } from './caller-context.ts';
import type { InboundRequest, Reply } from './inbound.ts';

/**
 * A request whose login is being verified. Many requests may wait for one verification, which lasts as long as the issuer
 * takes: a request that has ended must not be kept by it.
 */
class Login {
  #request: InboundRequest | undefined;
  readonly #known = Promise.withResolvers<Authenticated>();

  static verified(request: InboundRequest, verifying: Promise<Authenticated>): Promise<Authenticated> {
    const login = new Login(request);
    verifying.then(
      (authenticated) => login.#settle(() => login.#known.resolve(authenticated)),
      (error: unknown) => login.#settle(() => login.#known.reject(error)),
    );
    return login.#known.promise;
  }

  private constructor(request: InboundRequest) {
    this.#request = request;
    request.noteCallerKnown(false);
    request.onAbort(this.#leave);
  }

  readonly #leave = (): void => {
    this.#request = undefined;
    this.#known.reject(new CallerLeft());
  };

  #settle(settle: () => void): void {
    this.#request?.offAbort(this.#leave);
    this.#request?.noteCallerKnown(true);
    settle();
  }
}

export function authenticate(
  authenticator: Pick<Authenticator, 'authenticate'>,
): Layer<InboundRequest, Reply> {
  return (next) =>
    function authenticate(request, trace) {
      const found = authenticator.authenticate(request);
      const known = found instanceof Promise ? Login.verified(request, found) : found;
      return andThen(known, (authenticated: Authenticated) => {
        const { caller, by, subject, note } = authenticated;
        request.caller = caller;
        request.authenticated = authenticated;
        trace.caller = caller.name;
        trace.authenticatedBy = by;
        trace.subject = subject;
        trace.note = note;
        return next(request, trace);
      });
    };
}

/** For what is open to all: authenticates where a credential was sent, which must then be right. */
export function authenticateWhereSent(
  authenticator: Pick<Authenticator, 'authenticate' | 'credentialsOf'>,
): Layer<InboundRequest, Reply> {
  return (next) => {
    const authenticated = authenticate(authenticator)(next);
    return function authenticateWhereSent(request, trace) {
      const isSent = authenticator.credentialsOf(request.rawHeaders).length > 0;
      return isSent ? authenticated(request, trace) : next(request, trace);
    };
  };
}

/** Keeps each caller within its own limit, and says in `RateLimit` how much of it is left. */
export function limitCaller(limits: CallerLimits): Layer<InboundRequest, Reply> {
  return (next) =>
    function limit(request, trace) {
      const spent = request.caller === undefined ? undefined : limits.spend(request.caller);
      if (spent === undefined) return next(request, trace);
      const fields = rateLimitFields(spent);
      request.setHeader('ratelimit', fields.ratelimit);
      request.setHeader('ratelimit-policy', fields['ratelimit-policy']);
      if (!spent.ok && !wouldRefuse('caller-rate-limited', request, trace))
        throw new GatewayError('caller-rate-limited', { retryAfterMs: spent.retryAfterMs });
      return next(request, trace);
    };
}

/**
 * Whether what is about to be refused passes, because the callers file does not enforce this caller's rules yet. Each
 * problem is noted, in the order of the rules, or a limit that is used up would hide the grants that are missing.
 */
export function wouldRefuse(code: ProblemCode, { caller }: InboundRequest, trace: Trace): boolean {
  if (caller === undefined || caller.enforce) return false;
  const noted = trace.would?.split(' ') ?? [];
  if (!noted.includes(code)) trace.would = [...noted, code].join(' ');
  return true;
}

export interface CredentialSearch {
  readonly authenticator: Pick<Authenticator, 'credentialsOf'>;
  /** Whether a text of a request to this path holds the upstream key. */
  readonly holdsKey: (text: string, path: string) => boolean;
}

/** Whether a text of this request holds a credential: one of our tokens, one that the request came with, the key. */
export type HoldsCredential = (text: string, request: Pick<InboundRequest, 'rawHeaders' | 'path'>) => boolean;

/**
 * The one check of a caller's text that goes up, or back to the caller: the URL, the request's id, the trace fields and the
 * forwarded fields all pass it.
 */
export function searchForCredentials({ authenticator, holdsKey }: CredentialSearch): HoldsCredential {
  return (text, { rawHeaders, path }) => {
    // Decoding only shortens a text: one like `page=2` has no room for a credential.
    if (text.length < leastCharacters) return holdsKey(text, path);
    return holdsCredential(text, authenticator.credentialsOf(rawHeaders), (part) => holdsKey(part, path));
  };
}
