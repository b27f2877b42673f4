/** Refuses requests for names that are not ours (DNS rebinding ends here). */
import { GatewayError } from '../errors.ts';
import type { Layer } from '../exchange/layer.ts';
import { isHostAllowed } from '../http/host.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export interface HostOptions {
  /** `ALLOWED_HOSTS`, or `undefined` for the default. */
  readonly allowed: ReadonlySet<string> | undefined;
  /** Asked for each request: the callers file may change. */
  readonly admitsAnonymous: () => boolean;
}

export function guardHost({ allowed, admitsAnonymous }: HostOptions): Layer<InboundRequest, Reply> {
  // Callers repeat the same few names, so the last allowed one is not checked again.
  let answered: { readonly host: string; readonly anonymous: boolean } | undefined;
  return (next) =>
    function guard(request, trace) {
      const anonymous = admitsAnonymous();
      const { host } = request.headers;
      if (host !== undefined && host === answered?.host && anonymous === answered.anonymous) {
        return next(request, trace);
      }
      // HTTP/1.0 knows no `Host`: without one it is answered where any name would be.
      const isNameless = host === undefined && allowed === undefined && !anonymous;
      if (!isNameless && !isHostAllowed(host, allowed, anonymous)) {
        throw new GatewayError('host-not-allowed', { reason: whyNot(host, allowed) });
      }
      if (host !== undefined) answered = { host, anonymous };
      return next(request, trace);
    };
}

function whyNot(host: string | undefined, allowed: ReadonlySet<string> | undefined): string {
  if (host === undefined) return 'no Host';
  return allowed === undefined ? 'a Host that is not this machine' : 'a Host that is not in ALLOWED_HOSTS';
}
