/** Refuses requests for names that are not ours (DNS rebinding ends here). */
import { GatewayError } from '../errors.ts';
import type { Layer } from '../layer.ts';
import { isHostAllowed, soleHost } from './host-policy.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export interface HostOptions {
  /** `ALLOWED_HOSTS`, or `undefined` for the default. */
  readonly allowed: ReadonlySet<string> | undefined;
  /** Asked for each request: the callers file may change. */
  readonly admitsAnonymous: () => boolean;
}

export function guardHost({ allowed, admitsAnonymous }: HostOptions): Layer<InboundRequest, Reply> {
  return (next) =>
    function guard(request, trace) {
      const anonymous = admitsAnonymous();
      // Where every host is answered, nobody looks for it.
      if (allowed === undefined && !anonymous) return next(request, trace);
      if (!isHostAllowed(soleHost(request.rawHeaders), allowed, anonymous)) {
        throw new GatewayError('host-not-allowed');
      }
      return next(request, trace);
    };
}
