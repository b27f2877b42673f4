/**
 * Puts the key on each request, and deals with its refusal: the only place that takes the key's value out.
 *
 * The layers above see requests without a key; only what comes after this one gets a `SignedRequest`. Every
 * answer is searched for the key here, once, before anything stores it or passes it on. A 429 that holds it loses
 * everything but its wait, and still closes the gate.
 *
 * On a 401 (the specification: "a valid key is required") the key is read again; the request goes once more
 * with a new generation, or once with the previous key; else the caller gets `upstream-key-rejected`, at once
 * where the upstream takes the key elsewhere. A 403 is
 * about the role of the key's holder: it marks nothing and passes.
 */

import { type Claim, FixedClaim, type Turn } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Answer, HeaderFields, SignedRequest, UpstreamRequest } from '../exchange.ts';
import { exposeKey, type Key } from '../key/key.ts';
import type { KeyProbe } from '../key/key-health.ts';
import type { Keyring } from '../key/keyring.ts';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import { Trace } from '../trace.ts';
import { plainRead } from './plain-read.ts';
import { statedWaitMs } from './retry-after-policy.ts';

/** What this layer needs of the keyring. */
export type CredentialKeys = Pick<
  Keyring,
  'current' | 'standingOf' | 'refused' | 'replace' | 'accepted' | 'probeWith' | 'leaked' | 'scrub'
>;

export interface CredentialOptions {
  readonly keyring: CredentialKeys;
  /** Waits until something may go up that has had its turn already, as the gate above says. */
  readonly outwait?: (claim: Claim) => Promise<void>;
  /** How long a probe may take, in ms. */
  readonly probeTimeoutMs?: number;
}

/** The first sending, one with a new generation, and one with the previous key. */
const maxSends = 3;
/** Behind everybody who waits. */
const probeTurn: Turn = { name: 'key-probe', weight: 1, background: true };
/** A store that was down is asked again about this soon. */
const missingRetryMs = 1_000;

/**
 * Signs requests with the current key.
 *
 * Throws `upstream-key-missing` while there is no key, `upstream-key-rejected` when the upstream refuses it and
 * nothing better came in time, `upstream-invalid-response` when an answer holds the key.
 */
export function attachKey(
  options: CredentialOptions,
): (send: Handler<SignedRequest, Answer>) => Handler<UpstreamRequest, Answer> {
  const { keyring, outwait, probeTimeoutMs = 10_000 } = options;

  return (send) => {
    const sendWith = (
      key: Key,
      request: UpstreamRequest,
      trace: Trace,
      sends: number,
    ): Eventually<Answer> => {
      trace.generation = key.generation;
      const signed = { ...request, key: exposeKey(key), generation: key.generation };
      return andThen(send(signed, trace), (answer) => {
        if (answer.status === 401) {
          keyring.refused(key, request);
          return sendReplaced(key, request, trace, sends, true);
        }
        keyring.accepted(key, answer.status, answer.sentMs, request);
        return searched(keyring, answer, request.operation);
      });
    };

    const sendReplaced = async (
      refused: Key,
      request: UpstreamRequest,
      trace: Trace,
      sends: number,
      wasSent: boolean,
    ): Promise<Answer> => {
      const key = sends < maxSends ? await keyring.replace(refused, request.claim) : undefined;
      if (key === undefined) throw rejected('the store has no other');
      if (key === refused && wasSent)
        throw rejected('nothing says that it is about more than this operation');
      // Somebody else may have been told to wait while this one waited for its key.
      await outwait?.(request.claim);
      // The validators belong to an answer that the other key fetched.
      const { validators: _, ...plain } = request;
      return sendWith(key, key === refused ? request : plain, trace, sends + 1);
    };

    keyring.probeWith(probeThrough(send, outwait, probeTimeoutMs));

    return function credential(request, trace) {
      const key = keyring.current;
      if (key === undefined) {
        throw new GatewayError('upstream-key-missing', {
          reason: 'no key is loaded',
          retryAfterMs: missingRetryMs,
        });
      }
      switch (keyring.standingOf(key)) {
        case 'healthy':
          return sendWith(key, request, trace, 1);
        case 'suspect':
          // A 401 is being looked into: sending the same key would be refused as well.
          return sendReplaced(key, request, trace, 1, false);
        case 'rejected':
          throw rejected('the store has no other');
      }
    };
  };
}

/** The answer, once it was searched for the key. @throws GatewayError where it holds it */
function searched(keyring: CredentialKeys, answer: Answer, operation: string): Answer {
  const leaked = keyring.scrub.leakIn(answer);
  if (leaked === undefined) return answer;
  keyring.leaked(leaked, operation);
  // It must close the gate as any other, or callers would go on asking an upstream that wants rest.
  if (answer.status === 429) return withoutKey(answer);
  throw new GatewayError('upstream-invalid-response', {
    reason: 'the answer contains the key',
    receivedStatus: answer.status,
  });
}

/** Asks a read once with a key, when the gate lets it, and says what came of it. */
function probeThrough(
  send: Handler<SignedRequest, Answer>,
  outwait: CredentialOptions['outwait'],
  timeoutMs: number,
): KeyProbe {
  return async (key, read) => {
    const claim = new FixedClaim(performance.now() + timeoutMs, probeTurn);
    const timer = setTimeout(() => claim.end(new GatewayError('upstream-timeout')), timeoutMs);
    timer.unref();
    try {
      await outwait?.(claim);
      const request = { ...plainRead('key-probe', read.path, claim), query: read.query };
      const signed = { ...request, key: exposeKey(key), generation: key.generation };
      return (await send(signed, new Trace(performance.now()))).status;
    } finally {
      clearTimeout(timer);
    }
  };
}

/** A 429 of which only the wait is left, in our own words. */
function withoutKey(answer: Answer): Answer {
  const waitMs = statedWaitMs(answer.headers, answer.receivedAt);
  const headers: HeaderFields = waitMs === undefined ? {} : { 'retry-after': `${Math.ceil(waitMs / 1000)}` };
  return { ...answer, headers, body: '' };
}

function rejected(finding: string): GatewayError {
  return new GatewayError('upstream-key-rejected', {
    reason: `the upstream answered 401 to the key, and ${finding}`,
    receivedStatus: 401,
  });
}
