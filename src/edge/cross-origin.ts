/**
 * Keeps web pages of other sites out, and lets the listed ones in: names that are not ours (DNS rebinding ends here),
 * preflights, CORS fields, and pages that call where an anonymous caller exists. Pure: no `this`, no I/O, no clock.
 *
 * Origins are compared exactly and never mirrored; `null` (sandboxed frames, files) is never allowed, nor are cookies,
 * because the gateway knows none.
 */

import type { Config } from '../config/config.ts';
import { GatewayError } from '../errors.ts';
import type { Layer } from '../exchange/layer.ts';
import { isHostAllowed } from '../http/address.ts';
import { readByPages, sentByPages } from '../http/header-table.ts';
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
        const fields = cors.preflightFields(origin);
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

export type ResponseFields = Readonly<Record<string, string>>;

export interface CorsPolicy {
  /** A listed origin, byte for byte as the browser sends it. */
  isAllowed(origin: string | undefined): boolean;
  /** Fields for every answer and every problem: what is returned is made once, never change it. */
  fieldsFor(origin: string | undefined): ResponseFields;
  /** Fields of the 204 that answers a preflight; `undefined` for an origin that is not listed. */
  preflightFields(origin: string | undefined): ResponseFields | undefined;
}

/** How long a browser may remember a preflight. Two hours is the most that Chromium takes. */
const maxAgeSeconds = 7_200;
const noFields: ResponseFields = {};

/** Whether a request asks what a page may do, rather than doing it (Fetch standard: CORS-preflight request). */
export function isPreflight(
  method: string,
  origin: string | undefined,
  requestMethod: string | undefined,
): boolean {
  return method === 'OPTIONS' && origin !== undefined && requestMethod !== undefined;
}

/**
 * With no origins at all, no field is ever added, and no preflight answered.
 *
 * @param credentialHeaders fields that carry a JWT for some caller: asked for each preflight, because the callers file may
 * change
 */
export function corsPolicy(
  settings: Pick<Config, 'CORS_ORIGINS' | 'FORWARD_REQUEST_HEADERS' | 'FORWARD_RESPONSE_HEADERS'>,
  credentialHeaders: () => readonly string[],
): CorsPolicy {
  const shared = {
    'access-control-expose-headers': [...readByPages, ...settings.FORWARD_RESPONSE_HEADERS].join(', '),
    vary: 'Origin',
  };
  const perOrigin = new Map<string, ResponseFields>(
    settings.CORS_ORIGINS.map((origin) => [origin, { 'access-control-allow-origin': origin, ...shared }]),
  );
  const others: ResponseFields = settings.CORS_ORIGINS.length === 0 ? noFields : { vary: 'Origin' };
  const allowHeaders = (): string =>
    [...sentByPages, ...settings.FORWARD_REQUEST_HEADERS, ...credentialHeaders()].join(', ');
  return {
    isAllowed: (origin) => origin !== undefined && perOrigin.has(origin),
    fieldsFor: (origin) => (origin === undefined ? others : (perOrigin.get(origin) ?? others)),
    preflightFields(origin) {
      if (origin === undefined || !perOrigin.has(origin)) return undefined;
      return {
        'access-control-allow-origin': origin,
        'access-control-allow-methods': 'GET, HEAD',
        'access-control-allow-headers': allowHeaders(),
        'access-control-max-age': String(maxAgeSeconds),
        vary: 'Origin',
      };
    },
  };
}

export interface FetchMetadata {
  /** `Sec-Fetch-Site`; browsers set it, and no page can. */
  readonly site: string | undefined;
  readonly origin: string | undefined;
  /** The request's own `Host`, checked before: what `Origin` is compared with where there is no `Sec-Fetch-Site`. */
  readonly host: string | undefined;
}

/**
 * Whether an anonymous caller's request must be refused (`origin-not-allowed`). Scripts send neither field and
 * pass. An address typed into the address bar (`none`) passes, as does the gateway's own page. Another page
 * passes only when it names a listed origin: without `Origin` (an image, a link) it can't show that it is. Loopback is a
 * place, not an identity: every tab on the machine can send there, and a blind GET needs no CORS.
 *
 * @param isOriginAllowed whether the origin is in CORS_ORIGINS
 */
export function isForeignPage(
  { site, origin, host }: FetchMetadata,
  isOriginAllowed: (origin: string) => boolean,
): boolean {
  if (origin !== undefined && isOriginAllowed(origin)) return false;
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  if (origin === undefined) return false;
  // An older browser. `null` and everything that is not this host is foreign. An origin comes in lower case; a host may
  // come in any (RFC 9110 section 4.2.3).
  const own = host?.toLowerCase();
  return own === undefined || (origin !== `http://${own}` && origin !== `https://${own}`);
}

export interface HostOptions {
  /** `ALLOWED_HOSTS`, or `undefined` for the default. */
  readonly allowed: ReadonlySet<string> | undefined;
  /** Asked for each request: the callers file may change. */
  readonly admitsAnonymous: () => boolean;
}

/** Refuses requests for names that are not ours. */
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
