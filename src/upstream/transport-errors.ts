/** Sorts what can go wrong between us and the upstream into the gateway's own failures, in one place. */
import { GatewayError, type GatewayErrorOptions, type ProblemCode, type ProxyErrorType } from '../errors.ts';

type Sorted = readonly [code: ProblemCode, proxyError: ProxyErrorType];

const byCode: Readonly<Record<string, Sorted>> = {
  ECONNREFUSED: ['upstream-unreachable', 'connection_refused'],
  ENOTFOUND: ['upstream-unreachable', 'dns_error'],
  EAI_AGAIN: ['upstream-unreachable', 'dns_error'],
  EAI_FAIL: ['upstream-unreachable', 'dns_error'],
  EAI_NODATA: ['upstream-unreachable', 'dns_error'],
  ETIMEDOUT: ['upstream-timeout', 'connection_timeout'],
  UND_ERR_CONNECT_TIMEOUT: ['upstream-timeout', 'connection_timeout'],
  UND_ERR_HEADERS_TIMEOUT: ['upstream-timeout', 'http_response_timeout'],
  UND_ERR_BODY_TIMEOUT: ['upstream-timeout', 'http_response_timeout'],
  UND_ERR_HEADERS_OVERFLOW: ['upstream-invalid-response', 'http_response_header_section_size'],
  UND_ERR_RES_EXCEEDED_MAX_SIZE: ['upstream-invalid-response', 'http_response_body_size'],
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: ['upstream-invalid-response', 'http_response_incomplete'],
  EPROTO: ['upstream-unreachable', 'tls_protocol_error'],
  DEPTH_ZERO_SELF_SIGNED_CERT: ['upstream-unreachable', 'tls_certificate_error'],
  SELF_SIGNED_CERT_IN_CHAIN: ['upstream-unreachable', 'tls_certificate_error'],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: ['upstream-unreachable', 'tls_certificate_error'],
  UNABLE_TO_GET_ISSUER_CERT: ['upstream-unreachable', 'tls_certificate_error'],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: ['upstream-unreachable', 'tls_certificate_error'],
  HOSTNAME_MISMATCH: ['upstream-unreachable', 'tls_certificate_error'],
  INVALID_PURPOSE: ['upstream-unreachable', 'tls_certificate_error'],
};

/** How far an exchange had come when it failed. */
export type Progress = 'connecting' | 'sent' | 'begun';

function sort(code: string, progress: Progress): Sorted {
  const known = byCode[code];
  if (known !== undefined) return known;
  if (code.startsWith('CERT_') || code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    return ['upstream-unreachable', 'tls_certificate_error'];
  }
  if (code.startsWith('ERR_SSL') || code.startsWith('ERR_TLS'))
    return ['upstream-unreachable', 'tls_protocol_error'];
  if (code.startsWith('HPE_')) return ['upstream-invalid-response', 'http_protocol_error'];
  if (progress === 'connecting') return ['upstream-unreachable', 'connection_refused'];
  // A connection that breaks off before the answer has begun may be tried again; one that breaks off during it leaves an
  // incomplete answer.
  return progress === 'begun'
    ? ['upstream-invalid-response', 'http_response_incomplete']
    : ['upstream-unreachable', 'connection_terminated'];
}

/**
 * The gateway's failure for an error of undici, Node or OpenSSL.
 *
 * @param error what was reported; a `GatewayError` (our own abort) is handed back as it is
 * @param progress `connecting` until the request is written, `begun` from the head of the answer on
 */
export function transportFailure(error: unknown, progress: Progress): GatewayError {
  if (error instanceof GatewayError) return error;
  const code = codeOf(error);
  const [problem, proxyError] = sort(code, progress);
  const options: GatewayErrorOptions = {
    cause: error,
    proxyError,
    reason: `the exchange failed${code === '' ? '' : `: ${code}`}`,
  };
  return new GatewayError(problem, options);
}

/** The code of an error, or of the first that an `AggregateError` (several addresses tried) or a cause holds. */
function codeOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '';
  // Undici's parser has no codes, but a name of its own.
  if ('name' in error && error.name === 'HTTPParserError') return 'HPE_PARSER';
  // Its word for an answer to nothing we asked, such as a 100 without an Expect.
  if ('message' in error && error.message === 'bad response') return 'HPE_PARSER';
  if ('code' in error && typeof error.code === 'string' && error.code !== 'UND_ERR_SOCKET') return error.code;
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  return 'cause' in error ? codeOf(error.cause) : '';
}
