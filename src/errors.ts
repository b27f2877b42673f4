/**
 * The gateway's own failures, and the one table of what a caller gets for each.
 *
 * An answer of the upstream, whatever its status, is a value and never thrown. What goes wrong in the gateway
 * is thrown as a `GatewayError`: rich inside (cause, reason, for the log), plain on the wire (RFC 9457).
 */

interface ProblemText {
  readonly status: number;
  readonly title: string;
  /** What it means and what to do, for people: the page at `/problems/<code>`. */
  readonly help: string;
}

export const problems = {
  'caller-unauthenticated': {
    status: 401,
    title: 'The gateway does not know this caller',
    help: 'Send your gateway token as "Authorization: Bearer <token>" or in "X-API-Key", in one of them and once. An expired, revoked or mistyped token looks the same. Ask the operator of the gateway for a new one.',
  },
  'caller-forbidden': {
    status: 403,
    title: 'This caller may not do this operation',
    help: 'Your credential is fine, but the operation or the workspace is not among those granted to you, or your login is not one that the gateway admits. Ask the operator of the gateway for what the detail names; /me lists the operations and base addresses that you have.',
  },
  'origin-not-allowed': {
    status: 403,
    title: 'This web origin may not use the gateway',
    help: 'The request came from a web page whose origin is not listed in CORS_ORIGINS. The operator of the gateway can add it, exactly as the browser sends it (scheme, host and port).',
  },
  'caller-rate-limited': {
    status: 429,
    title: "This caller's own limit is used up",
    help: 'The gateway limits each caller. Wait as long as Retry-After says; RateLimit says how much is left.',
  },
  'host-not-allowed': {
    status: 421,
    title: 'The gateway does not answer for this host name',
    help: 'The Host header is not among those the gateway answers for. Use the address you were given, or have the name added to ALLOWED_HOSTS.',
  },
  'invalid-request': {
    status: 400,
    title: 'The request is not valid',
    help: 'The detail says what is wrong. Repeating the request unchanged will not help. Reads have no body, and a key is never sent in a URL.',
  },
  'uri-too-long': {
    status: 414,
    title: 'The request target is too long',
    help: 'Path and query together may have up to 8 KiB.',
  },
  'unknown-operation': {
    status: 404,
    title: 'The gateway has no such operation',
    help: 'Only listed reads pass, spelled exactly so, without any encoding in the path. The detail lists them, and /docs describes them.',
  },
  'method-not-allowed': {
    status: 405,
    title: 'The path does not take this method',
    help: 'Every operation is a read: use GET or HEAD, as the Allow header says.',
  },
  'upstream-rate-limited': {
    status: 429,
    title: 'The upstream limits requests for longer than this one can wait',
    help: 'The Workspace Analytics API limits requests, and its limit holds for all callers of the gateway together. A request waits for its turn as long as REQUEST_TIMEOUT allows; where its turn cannot come in that time, it is told so at once. Try again after Retry-After.',
  },
  'upstream-key-rejected': {
    status: 502,
    title: "The upstream refused the gateway's key",
    help: 'Your own credentials are fine. The key that the gateway holds was revoked or replaced: the operator of the gateway must put a new one in its secret store. "analytics-gateway check" says more.',
  },
  'upstream-key-missing': {
    status: 503,
    title: 'The gateway has no key yet',
    help: 'The secret store has not given a key. Try again shortly; the operator of the gateway finds the reason in its log.',
  },
  'upstream-unreachable': {
    status: 502,
    title: 'The upstream cannot be reached',
    help: 'No connection to the Workspace Analytics API, or it broke off. Try again; if it lasts, the operator of the gateway finds the reason in its log.',
  },
  'upstream-invalid-response': {
    status: 502,
    title: 'The upstream gave an answer that cannot be passed on',
    help: 'The answer was truncated, too large, redirected, encoded, not of an allowed media type, or held something that must not leave the gateway. The log says which.',
  },
  'upstream-timeout': {
    status: 504,
    title: 'The upstream took too long',
    help: 'The Workspace Analytics API did not answer within the time allowed. Try again later.',
  },
  'not-in-cache': {
    status: 504,
    title: 'No stored answer satisfies the request',
    help: 'The request said "Cache-Control: only-if-cached", and nothing that may be used is stored (RFC 9111 section 5.2.1.7).',
  },
  overloaded: {
    status: 503,
    title: 'The gateway has too much waiting already',
    help: 'Too many requests wait for their turn at the upstream. Try again after Retry-After.',
  },
  'shutting-down': {
    status: 503,
    title: 'The gateway is stopping',
    help: 'This instance is going away. Try again: another one, or its successor, will answer.',
  },
  'internal-error': {
    status: 500,
    title: 'The gateway failed',
    help: 'This is a fault in the gateway. Its log has a line with your request id.',
  },
} as const satisfies Record<string, ProblemText>;

export type ProblemCode = keyof typeof problems;

export function isProblemCode(code: string): code is ProblemCode {
  return Object.hasOwn(problems, code);
}

/** Error types of Proxy-Status that the gateway uses (RFC 9209 section 2.3). */
export type ProxyErrorType =
  | 'dns_error'
  | 'dns_timeout'
  | 'connection_refused'
  | 'connection_terminated'
  | 'connection_timeout'
  | 'connection_limit_reached'
  | 'tls_certificate_error'
  | 'tls_protocol_error'
  | 'http_response_incomplete'
  | 'http_response_body_size'
  | 'http_response_header_section_size'
  | 'http_response_content_coding'
  | 'http_response_timeout'
  | 'http_protocol_error'
  | 'proxy_internal_error'
  | 'proxy_configuration_error'
  | 'destination_unavailable';

type ConnectionFault = readonly [type: ProxyErrorType, words: string];

const unknownName: ConnectionFault = ['dns_error', 'has a host name that is not known'];
const brokenOff: ConnectionFault = ['connection_terminated', 'broke off the connection'];
const notTaken: ConnectionFault = ['connection_timeout', 'did not take the connection in time'];
const noAnswer: ConnectionFault = ['http_response_timeout', 'did not answer in time'];
const otherName: ConnectionFault = ['tls_certificate_error', 'has a certificate for another name'];
const unknownAuthority: ConnectionFault = [
  'tls_certificate_error',
  'has a certificate that is signed by an unknown authority',
];

const connectionFaults: Readonly<Record<string, ConnectionFault>> = {
  ECONNREFUSED: ['connection_refused', 'refused the connection'],
  ...{ ECONNRESET: brokenOff, EPIPE: brokenOff, UND_ERR_SOCKET: brokenOff },
  ...{ ENOTFOUND: unknownName, EAI_NODATA: unknownName, EAI_FAIL: unknownName },
  EAI_AGAIN: ['dns_error', 'has a host name that cannot be looked up now'],
  ...{ ETIMEDOUT: notTaken, UND_ERR_CONNECT_TIMEOUT: notTaken },
  ...{ UND_ERR_HEADERS_TIMEOUT: noAnswer, UND_ERR_BODY_TIMEOUT: noAnswer },
  CERT_HAS_EXPIRED: ['tls_certificate_error', 'has a certificate that has expired'],
  ...{ ERR_TLS_CERT_ALTNAME_INVALID: otherName, HOSTNAME_MISMATCH: otherName },
  DEPTH_ZERO_SELF_SIGNED_CERT: ['tls_certificate_error', 'has a certificate that is signed by itself'],
  ...{ SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority, UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority },
  ...{ UNABLE_TO_GET_ISSUER_CERT: unknownAuthority, UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority },
  INVALID_PURPOSE: ['tls_certificate_error', 'has a certificate for another purpose'],
  EPROTO: ['tls_protocol_error', 'agreed on no TLS connection'],
};

/**
 * What the other end of a connection did, by a code of Node, OpenSSL or undici: its type, and words that follow a name for
 * that end. `undefined` for a code that is about something else.
 */
export function connectionFault(code: string): ConnectionFault | undefined {
  const known = connectionFaults[code];
  if (known !== undefined) return known;
  if (code.startsWith('CERT_')) return ['tls_certificate_error', `has a certificate that fails (${code})`];
  if (/^ERR_(?:SSL|TLS)/.test(code)) return ['tls_protocol_error', `agreed on no TLS connection (${code})`];
  return undefined;
}

export interface GatewayErrorOptions {
  /** What lies behind it. Goes to the log (scrubbed), never to a caller. */
  readonly cause?: unknown;
  /** Why, in our own words: for the log only. */
  readonly reason?: string;
  /** More for the caller than the title says. Written by us, never text from below. */
  readonly detail?: string;
  /** How long waiting helps, in ms. Sent as `Retry-After`, rounded up to whole seconds. */
  readonly retryAfterMs?: number;
  readonly proxyError?: ProxyErrorType;
  /** The upstream's status behind the failure, for Proxy-Status `received-status`. */
  readonly receivedStatus?: number;
  /** Further response fields the failure calls for, as `Allow` on a 405. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A failure of the gateway itself. `message` is the reason and is for the log only. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ProblemCode;
  readonly detail: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly proxyError: ProxyErrorType | undefined;
  readonly receivedStatus: number | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;

  constructor(code: ProblemCode, options: GatewayErrorOptions = {}) {
    super(
      options.reason ?? options.detail ?? problems[code].title,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.detail = options.detail;
    this.retryAfterMs = options.retryAfterMs;
    this.proxyError = options.proxyError;
    this.receivedStatus = options.receivedStatus;
    this.headers = options.headers;
  }

  get status(): number {
    return problems[this.code].status;
  }
}

/**
 * A setting, or what it names, cannot be used: a gateway does not start with it. Each problem names the setting and never
 * a value.
 */
export class SettingError extends Error {
  readonly problems: readonly string[];

  constructor(...problems: readonly string[]) {
    super(problems.join('; '));
    this.problems = problems;
  }
}

/** The code that Node, a library or the system gave an error, as `ENOENT`; `undefined` where it has none. */
export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined;
}
