/**
 * The one table of header fields: what goes up of a caller's request, what comes down of an upstream's answer, and who sees
 * it. A response field is allowed by one line here. All lists of fields are derived from it when the program is loaded.
 * Pure: no `this`, no I/O, no clock.
 */

/** The replies in the API document that a field stands in; `wait`: those where waiting may help. */
export type Documented = 'every reply' | 'answers' | 'failures' | 'wait' | '401';

interface FieldRule {
  /**
   * In a caller's request. `ours`: the gateway sends its own instead. `valid`: goes up where it is valid. `stops`: means
   * something to the gateway, or to one connection. Without it: goes up where FORWARD_REQUEST_HEADERS names it.
   */
  readonly up?: 'ours' | 'valid' | 'stops';
  /**
   * In an upstream's answer. `passes`: comes down unchanged. `caching`: does with CALLER_CACHE_CONTROL=upstream. `remade`:
   * the gateway makes its own of it. `ours`: the gateway sends its own instead. `stops`: would lie, or harm a caller.
   * Without it: comes down where FORWARD_RESPONSE_HEADERS names it.
   */
  readonly down?: 'passes' | 'caching' | 'remade' | 'ours' | 'stops';
  /** What a page of CORS_ORIGINS may do with it besides what every page may (Fetch standard section 2.2.2). */
  readonly pages?: 'send' | 'read' | 'both';
  /** Where the API document describes it in replies. Its words stand in `documents/components.ts`. */
  readonly document?: Documented;
  /** It may come once: a repeated one says nothing. */
  readonly isSingle?: true;
  /** It speaks of one connection (RFC 9110 section 7.6.1), or describes the body that it came with. */
  readonly about?: 'connection' | 'body';
}

/** Names as they are written in messages. */
const table: Readonly<Record<string, FieldRule>> = {
  // The body.
  'Content-Type': { down: 'passes', pages: 'send', isSingle: true, about: 'body' },
  'Content-Language': { down: 'passes', about: 'body' },
  'Content-Encoding': { down: 'remade', about: 'body' },
  'Content-Length': { up: 'stops', down: 'remade', about: 'body' },
  'Content-Range': { about: 'body' },
  // How the answer came about, and how long it holds.
  Age: { down: 'ours', pages: 'read', document: 'answers' },
  'Cache-Control': { down: 'caching', pages: 'send', document: 'answers' },
  'Cache-Status': { down: 'ours', pages: 'read', document: 'every reply' },
  Date: { down: 'remade', pages: 'read' },
  ETag: { down: 'remade', pages: 'read', document: 'answers', isSingle: true },
  Expires: { down: 'caching', isSingle: true },
  'Last-Modified': { down: 'passes', document: 'answers', isSingle: true },
  Pragma: { down: 'caching', pages: 'send' },
  'Preference-Applied': { down: 'ours', pages: 'read', document: 'answers' },
  'Proxy-Status': { down: 'ours', pages: 'read', document: 'failures' },
  RateLimit: { down: 'ours', pages: 'read', document: 'every reply' },
  'RateLimit-Policy': { down: 'ours', pages: 'read', document: 'every reply' },
  'Retry-After': { down: 'passes', pages: 'read', document: 'wait', isSingle: true },
  'Server-Timing': { down: 'ours', pages: 'read', document: 'answers' },
  Vary: { down: 'remade' },
  Via: { up: 'ours', down: 'ours', pages: 'read', document: 'every reply' },
  // Ids.
  'X-Request-ID': { up: 'valid', down: 'ours', pages: 'both', document: 'every reply' },
  traceparent: { up: 'valid', pages: 'send' },
  tracestate: { up: 'valid', pages: 'send' },
  // Credentials, and where a request comes from.
  Authorization: { up: 'stops', pages: 'send' },
  'X-API-Key': { up: 'ours', down: 'stops', pages: 'send' },
  Cookie: { up: 'stops' },
  'Set-Cookie': { down: 'stops' },
  'Set-Cookie2': { down: 'stops' },
  'WWW-Authenticate': { down: 'ours', pages: 'read', document: '401' },
  'Proxy-Authenticate': { up: 'stops', down: 'stops', about: 'connection' },
  'Proxy-Authentication-Info': { about: 'connection' },
  'Proxy-Authorization': { up: 'stops' },
  'Fly-Src': { up: 'stops' },
  'Fly-Src-Signature': { up: 'stops' },
  Forwarded: { up: 'stops' },
  'X-Forwarded-For': { up: 'stops' },
  'X-Forwarded-Host': { up: 'stops' },
  'X-Forwarded-Port': { up: 'stops' },
  'X-Forwarded-Proto': { up: 'stops' },
  'X-Forwarded-URI': { up: 'stops' },
  'X-Real-IP': { up: 'stops' },
  // What is asked for.
  Accept: { up: 'ours' },
  'Accept-Encoding': { up: 'ours' },
  Expect: { up: 'stops' },
  Host: { up: 'ours' },
  'If-Match': { up: 'stops' },
  'If-Modified-Since': { up: 'ours', pages: 'send' },
  'If-None-Match': { up: 'ours', pages: 'send' },
  'If-Range': { up: 'stops' },
  'If-Unmodified-Since': { up: 'stops' },
  Prefer: { pages: 'send' },
  Range: { up: 'stops' },
  'User-Agent': { up: 'ours' },
  // Where a caller is led. The targets of links are led back to the gateway (`upstream/links.ts`).
  Link: { down: 'passes', pages: 'read', document: 'answers' },
  // It would send a caller's token to the upstream.
  Location: { down: 'stops' },
  // What a browser may do with a reply.
  'Access-Control-Allow-Credentials': { down: 'ours' },
  'Access-Control-Allow-Headers': { down: 'ours' },
  'Access-Control-Allow-Methods': { down: 'ours' },
  'Access-Control-Allow-Origin': { down: 'ours' },
  'Access-Control-Expose-Headers': { down: 'ours' },
  'Access-Control-Max-Age': { down: 'ours' },
  'Content-Security-Policy': { down: 'ours' },
  'Cross-Origin-Resource-Policy': { down: 'ours' },
  Server: { down: 'stops' },
  'Timing-Allow-Origin': { down: 'ours' },
  'X-Content-Type-Options': { down: 'ours' },
  // One connection.
  Connection: { up: 'stops', down: 'ours', about: 'connection' },
  'Keep-Alive': { up: 'stops', down: 'ours', about: 'connection' },
  'Proxy-Connection': { up: 'stops', down: 'stops' },
  TE: { up: 'stops', about: 'connection' },
  Trailer: { up: 'stops', down: 'stops', about: 'connection' },
  'Transfer-Encoding': { up: 'stops', down: 'ours', about: 'connection' },
  Upgrade: { up: 'stops', down: 'stops', about: 'connection' },
};

/** The names of the fields that a rule holds for, as they are written. */
function namesWhere(holds: (rule: FieldRule) => boolean): readonly string[] {
  return Object.entries(table).flatMap(([name, rule]) => (holds(rule) ? [name] : []));
}

function lowerWhere(holds: (rule: FieldRule) => boolean): ReadonlySet<string> {
  return new Set(namesWhere(holds).map((name) => name.toLowerCase()));
}

/** FORWARD_REQUEST_HEADERS may not name these. */
export const neverUp = lowerWhere(({ up }) => up !== undefined);
/** FORWARD_RESPONSE_HEADERS may not name these. */
export const neverDown = lowerWhere(
  ({ down }) => down !== undefined && down !== 'passes' && down !== 'caching',
);
/** Requests that go up have the gateway's own. */
export const ownUp = lowerWhere(({ up }) => up === 'ours');
/** Come down unchanged. */
export const passedDown = lowerWhere(({ down }) => down === 'passes');
/** Come down unchanged with CALLER_CACHE_CONTROL=upstream. */
export const passedCaching = lowerWhere(({ down }) => down === 'caching');
/** Come down in another form, made of the upstream's value. */
export const remadeDown = lowerWhere(({ down }) => down === 'remade');
/** A repeated one says nothing. */
export const singleFields = lowerWhere(({ isSingle }) => isSingle === true);
/** Speak of one connection. */
export const connectionFields = lowerWhere(({ about }) => about === 'connection');
/** Describe the body that they came with. */
export const bodyFields = lowerWhere(({ about }) => about === 'body');
/** A page of CORS_ORIGINS may send these. */
export const sentByPages = namesWhere(({ pages }) => pages === 'send' || pages === 'both');
/** A page of CORS_ORIGINS may read these. */
export const readByPages = namesWhere(({ pages }) => pages === 'read' || pages === 'both');

/** The fields that the API document describes, by the replies that have them. */
export const documentedFields: ReadonlyMap<string, Documented> = new Map(
  Object.entries(table).flatMap(([name, { document }]) =>
    document === undefined ? [] : [[name, document] as const],
  ),
);
