/** For browsers: sets CORS fields, answers preflights, and refuses pages of other sites where an anonymous caller exists. */
import { GatewayError } from '../errors.ts';
import type { Layer } from '../exchange/layer.ts';
import { type CorsPolicy, isPreflight } from './cors.ts';
import { isForeignPage } from './fetch-metadata.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { listed, securityFields, viaField } from './reply-fields.ts';

export interface OriginOptions {
  readonly cors: CorsPolicy;
  readonly admitsAnonymous: () => boolean;
  /** Whether a link on a page of another site may lead here: to documents, which are for reading. */
  readonly admitsLinks?: boolean;
}

/**
 * Sets the CORS fields of every reply. Listed before every layer that may refuse: a page must be able to read problems,
 * and a cache must not give one page a reply that was meant for another.
 */
export function corsHeaders(cors: CorsPolicy): Layer<InboundRequest, Reply> {
  return (next) =>
    function set(request, trace) {
      const fields = cors.fieldsFor(request.headers.origin);
      for (const name in fields) request.setHeader(name, fields[name] as string);
      return next(request, trace);
    };
}

export function guardOrigin({
  cors,
  admitsAnonymous,
  admitsLinks = false,
}: OriginOptions): Layer<InboundRequest, Reply> {
  return (next) =>
    function guard(request, trace) {
      const { headers } = request;
      const { origin } = headers;
      const requestMethod = headers['access-control-request-method'];
      if (isPreflight(request.method, origin, requestMethod)) {
        // Before authentication: browsers send no credential with it.
        const fields = cors.preflightFields({
          origin,
          privateNetwork: request.field('access-control-request-private-network'),
        });
        if (fields === undefined) {
          throw new GatewayError('origin-not-allowed', {
            reason: 'a preflight of an origin that is not listed',
          });
        }
        return { status: 204, fields: listed({ ...fields, ...viaField, ...securityFields }), body: null };
      }
      if (admitsAnonymous()) {
        const from = { site: request.field('sec-fetch-site'), origin, host: headers.host };
        if (isForeignPage(from, cors.isAllowed) && !(admitsLinks && isFollowedLink(request)))
          throw new GatewayError('origin-not-allowed', { reason: 'a request from a page of another site' });
      }
      return next(request, trace);
    };
}

/** Whether a browser goes to the page itself: what comes back is shown, and the page with the link cannot read it. */
function isFollowedLink(request: InboundRequest): boolean {
  return (
    request.method === 'GET' &&
    request.headers.origin === undefined &&
    request.field('sec-fetch-mode') === 'navigate' &&
    request.field('sec-fetch-dest') === 'document'
  );
}
