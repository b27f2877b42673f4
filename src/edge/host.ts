/** Refuses requests for names that are not ours (DNS rebinding ends here). */
import { GatewayError } from '../errors.ts';
import type { Layer } from '../layer.ts';
import { hostName, isHostAllowed, soleHost } from './host-policy.ts';
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
      const host = soleHost(request.rawHeaders);
      if (!isHostAllowed(host, allowed, anonymous)) {
        throw new GatewayError('host-not-allowed', { reason: whyNot(host, allowed) });
      }
      return next(request, trace);
    };
}

/** For the log, which never has the value itself. */
function whyNot(host: string | undefined, allowed: ReadonlySet<string> | undefined): string {
  if (host === undefined) return 'no Host, or more than one';
  if (hostName(host) === undefined) return 'a Host that is no name';
  return allowed === undefined ? 'a Host that is not this machine' : 'a Host that is not in ALLOWED_HOSTS';
}
