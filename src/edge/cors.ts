/**
 * The CORS fields of replies: which origins may read them (Fetch standard section 3.2). Origins are compared exactly and
 * never mirrored; `null` (sandboxed frames, files) is never allowed, nor are cookies, because the gateway knows none. Pure: no `this`, no I/O, no clock.
 */

export interface CorsOptions {
  /** CORS_ORIGINS, each checked with `originProblem`. */
  readonly origins: readonly string[];
  /** Further request fields a page may send: FORWARD_REQUEST_HEADERS. */
  readonly requestHeaders: readonly string[];
  /** Fields that carry a JWT for some caller: asked for each preflight, because the callers file may change. */
  readonly credentialHeaders: () => readonly string[];
  /** Further response fields a page may read: FORWARD_RESPONSE_HEADERS. */
  readonly responseHeaders: readonly string[];
}

export interface Preflight {
  readonly origin: string | undefined;
  /** `Access-Control-Request-Private-Network`. */
  readonly privateNetwork: string | undefined;
}

export type ResponseFields = Readonly<Record<string, string>>;

export interface CorsPolicy {
  /** A listed origin, byte for byte as the browser sends it. */
  isAllowed(origin: string | undefined): boolean;
  /** Fields for every answer and every problem: what is returned is made once, never change it. */
  fieldsFor(origin: string | undefined): ResponseFields;
  /** Fields of the 204 that answers a preflight; `undefined` for an origin that is not listed. */
  preflightFields(preflight: Preflight): ResponseFields | undefined;
}

// What a page may send besides the fields that are always allowed: how it authenticates, conditions, tracing. Libraries
// for pages set Content-Type on every request; it means nothing here.
const requestHeaders = [
  'Authorization',
  'X-API-Key',
  'Content-Type',
  'X-Request-ID',
  'If-None-Match',
  'If-Modified-Since',
  'Cache-Control',
  'Pragma',
  'traceparent',
  'tracestate',
];

// What a page may read besides Cache-Control, Content-Type, Expires and Last-Modified: how the answer came about.
const exposedHeaders = [
  'Age',
  'Cache-Status',
  'Date',
  'ETag',
  'Proxy-Status',
  'RateLimit',
  'RateLimit-Policy',
  'Retry-After',
  'Via',
  'WWW-Authenticate',
  'X-Request-ID',
];

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

/** With no origins at all, no field is ever added, and no preflight answered. */
export function corsPolicy(options: CorsOptions): CorsPolicy {
  const shared = {
    'access-control-expose-headers': [...exposedHeaders, ...options.responseHeaders].join(', '),
    vary: 'Origin',
  };
  const perOrigin = new Map<string, ResponseFields>(
    options.origins.map((origin) => [origin, { 'access-control-allow-origin': origin, ...shared }]),
  );
  const others: ResponseFields = options.origins.length === 0 ? noFields : { vary: 'Origin' };
  const allowHeaders = (): string =>
    [...requestHeaders, ...options.requestHeaders, ...options.credentialHeaders()].join(', ');
  return {
    isAllowed: (origin) => origin !== undefined && perOrigin.has(origin),
    fieldsFor: (origin) => (origin === undefined ? others : (perOrigin.get(origin) ?? others)),
    preflightFields({ origin, privateNetwork }) {
      if (origin === undefined || !perOrigin.has(origin)) return undefined;
      return {
        'access-control-allow-origin': origin,
        'access-control-allow-methods': 'GET, HEAD',
        'access-control-allow-headers': allowHeaders(),
        'access-control-max-age': String(maxAgeSeconds),
        // A page of a public address asks before it calls a private one.
        ...(privateNetwork === 'true' ? { 'access-control-allow-private-network': 'true' } : {}),
        vary: 'Origin',
      };
    },
  };
}
