/** Authenticates the caller before anything is looked up: a cache hit is authorised like everything else. */

import type { Authenticator } from '../callers/authenticator.ts';
import type { Authenticated } from '../callers/caller.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { CallerLeft } from './request-context.ts';

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
      return andThen(known, ({ caller, by, subject, note }: Authenticated) => {
        request.caller = caller;
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
