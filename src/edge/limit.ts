/** Keeps each caller within its own limit, and says in `RateLimit` how much of it is left. */
import { type CallerLimits, rateLimitFields } from '../callers/limit.ts';
import { GatewayError } from '../errors.ts';
import type { Layer } from '../exchange/layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export function limitCaller(limits: CallerLimits): Layer<InboundRequest, Reply> {
  return (next) =>
    function limit(request, trace) {
      const spent = request.caller === undefined ? undefined : limits.spend(request.caller);
      if (spent === undefined) return next(request, trace);
      const fields = rateLimitFields(spent);
      request.setHeader('ratelimit', fields.ratelimit);
      request.setHeader('ratelimit-policy', fields['ratelimit-policy']);
      if (!spent.ok) throw new GatewayError('caller-rate-limited', { retryAfterMs: spent.retryAfterMs });
      return next(request, trace);
    };
}
