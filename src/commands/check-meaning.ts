/** What an outcome of a check means, in plain words. Pure: no `this`, no I/O, no clock. */
import { GatewayError, type ProxyErrorType } from '../errors.ts';

/** How one call went, for programs. */
export type CallOutcome =
  | 'accepted'
  | 'key-rejected'
  | 'operation-refused'
  | 'role-insufficient'
  | 'parameters-missing'
  | 'rate-limited'
  | 'unexpected-status'
  | 'unreachable'
  | 'timeout'
  | 'invalid-response'
  | 'failed';

export interface Meaning {
  readonly outcome: CallOutcome;
  readonly text: string;
}

/**
 * The specification's table of statuses, and what to do about each.
 *
 * @param waitMs how long the upstream asks to wait, where it says so
 * @param isAdded whether it was a read of UPSTREAM_READS, which no specification tells us of
 */
export function meaningOfStatus(status: number, waitMs?: number, isAdded = false): Meaning {
  const wait = waitMs === undefined ? undefined : `${Math.ceil(waitMs / 1_000)} s, as it says`;
  if (status >= 200 && status < 300) return { outcome: 'accepted', text: 'The key was accepted.' };
  switch (status) {
    case 401:
      return keyRejected;
    case 403:
      return {
        outcome: 'role-insufficient',
        text: 'The key is valid, but the workspace role of its holder is insufficient for this read. Use a key of a holder with a sufficient role.',
      };
    case 400:
    case 422:
      if (!isAdded) break;
      return {
        outcome: 'parameters-missing',
        text: 'The upstream has this read, and wants parameters in its query, which a check cannot know.',
      };
    case 404:
      return {
        outcome: 'unexpected-status',
        text: isAdded
          ? 'The upstream has nothing at this address: correct it in UPSTREAM_READS, as it stands behind the /api of UPSTREAM_BASE_URL, or leave it out.'
          : 'The upstream has nothing at this address. Is UPSTREAM_BASE_URL right? It ends with /api, and has that once.',
      };
    case 429:
      return {
        outcome: 'rate-limited',
        text: `The upstream limits requests now, and so said nothing about the key. Wait${wait === undefined ? '' : ` ${wait}`}, then check again.`,
      };
  }
  return {
    outcome: 'unexpected-status',
    text:
      status >= 500
        ? `The upstream has a fault of its own, and so said nothing about the key. Check again ${wait === undefined ? 'later' : `in ${wait}`}.`
        : `The upstream answered what its specification does not say for this read. Is ${isAdded ? 'UPSTREAM_READS' : 'UPSTREAM_BASE_URL'} right?`,
  };
}

/** What kept a call from getting an answer. */
export function meaningOfFailure(error: unknown): Meaning {
  if (!(error instanceof GatewayError)) {
    return { outcome: 'failed', text: 'The gateway failed to make the call.' };
  }
  switch (error.code) {
    case 'upstream-key-rejected':
      return keyRejected;
    case 'upstream-unreachable':
      return {
        outcome: 'unreachable',
        text: (error.proxyError && unreachable[error.proxyError]) ?? 'The upstream cannot be reached.',
      };
    case 'upstream-timeout':
      return {
        outcome: 'timeout',
        text:
          (error.proxyError && unreachable[error.proxyError]) ??
          'The upstream took longer to answer than UPSTREAM_TIMEOUT allows.',
      };
    case 'upstream-invalid-response':
      return {
        outcome: 'invalid-response',
        text: `The upstream's answer cannot be passed on (${error.message}). Is UPSTREAM_BASE_URL right, and is there no login page or proxy in between?`,
      };
    default:
      return { outcome: 'failed', text: `The call was not made: ${error.message}.` };
  }
}

/** A 401 to a key that a probe found good. */
export const operationRefused: Meaning = {
  outcome: 'operation-refused',
  text: 'The upstream refuses this read (401), but takes the key elsewhere.',
};

const keyRejected: Meaning = {
  outcome: 'key-rejected',
  text: 'The upstream refused the key: it was revoked, mistyped (quotation marks count), or belongs to another upstream. Create a new one in the settings of the web application (API keys, action Create) and put it in the store.',
};

const unreachable: Partial<Record<ProxyErrorType, string>> = {
  dns_error: 'The host name in UPSTREAM_BASE_URL is not known.',
  dns_timeout: 'The host name in UPSTREAM_BASE_URL could not be looked up in time.',
  connection_refused: 'The upstream refused the connection: nothing listens at that host and port.',
  connection_timeout: 'The upstream did not take the connection in time: a firewall may be in between.',
  connection_terminated: 'The upstream broke off the connection.',
  tls_certificate_error:
    'The certificate of the upstream cannot be verified: it has expired, is for another name, or is signed by an unknown authority.',
  tls_protocol_error:
    'No TLS connection could be agreed on: is http where https should be, or the other way round?',
  http_response_timeout: 'The upstream took longer to answer than UPSTREAM_TIMEOUT allows.',
};
