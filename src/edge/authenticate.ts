/** Authenticates the caller before anything is looked up: a cache hit is authorised like everything else. */

import type { Authenticator } from '../callers/authenticator.ts';
import type { Authenticated } from '../callers/caller.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export function authenticate(
  authenticator: Pick<Authenticator, 'authenticate'>,
): Layer<InboundRequest, Reply> {
  return (next) =>
    function authenticate(request, trace) {
      return andThen(authenticator.authenticate(request), ({ caller, by, subject, note }: Authenticated) => {
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
