/**
 * Puts the key on each request, and notices its refusal: the only place outside `key/` that takes the key's value out.
 *
 * The layers above see requests without a key; only what comes after this one gets a `SignedRequest`. Every
 * answer is searched for the key here, once, before anything stores it or passes it on. A 429 that holds it loses
 * everything but its wait, and still closes the gate.
 *
 * A 401 (the specification: "a valid key is required") makes the key suspect. The request is handed up at once as
 * `KeySuspected`, so that it holds no place at the gate while the key is looked into; `retryWithKey`, above the gate, waits
 * and sends it again. A 403 is about the role of the key's holder: it marks nothing and passes.
 */

import { GatewayError, type GatewayErrorOptions } from '../errors.ts';
import { type Answer, plainRead, type SignedRequest, type UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler, Layer } from '../exchange/layer.ts';
import {
  type FixedContext,
  type Flow,
  type RequestContext,
  timedContext,
} from '../exchange/request-context.ts';
import { Trace } from '../exchange/trace.ts';
import { exposeKey, type Key } from '../key/key.ts';
import type { KeyCheck } from '../key/key-monitor.ts';
import type { Keyring } from '../key/keyring.ts';

/** What this layer needs of the keyring. */
export type CredentialKeys = Pick<
  Keyring,
  'current' | 'usable' | 'refused' | 'replace' | 'accepted' | 'leaked' | 'scrub'
>;

/** A flow of its own: while a key is suspect, no other turn is of use. */
const checkFlow: Flow = { name: 'key-check', weight: 1, background: false };
/** A store that was down is asked again about this soon. */
const missingRetryMs = 1_000;

/** The request was refused, or not sent, because of its key. It may go again once the suspicion is settled. */
class KeySuspected extends GatewayError {
  readonly #keyring: CredentialKeys;
  readonly #key: Key;
  readonly #wasSent: boolean;

  constructor(keyring: CredentialKeys, key: Key, wasSent: boolean) {
    super('upstream-key-rejected', rejection('the request may not be sent again'));
    this.#keyring = keyring;
    this.#key = key;
    this.#wasSent = wasSent;
  }

  /**
   * Waits until it is known with which key to send.
   *
   * @returns whether that is another key
   * @throws GatewayError `upstream-key-rejected` where no key is left to send with, or the same key would be refused
   * again; the context's reason when it ends
   */
  async settled(context: RequestContext): Promise<boolean> {
    const key = await this.#keyring.replace(this.#key, context);
    if (key === undefined) throw rejected('the store has no other');
    if (key === this.#key && this.#wasSent) {
      throw rejected('nothing says that it is about more than this operation');
    }
    return key !== this.#key;
  }
}

/**
 * Signs requests with the current key, or with the one that is tried in its place.
 *
 * Throws `upstream-key-missing` while there is no key, `KeySuspected` when the upstream refuses it,
 * `upstream-invalid-response` when an answer holds the key.
 */
export function attachKey(
  keyring: CredentialKeys,
): (send: Handler<SignedRequest, Answer>) => Handler<UpstreamRequest, Answer> {
  return (send) =>
    async function credential(request, trace) {
      const { current, usable: key } = keyring;
      if (current === undefined) {
        throw new GatewayError('upstream-key-missing', {
          reason: 'no key is loaded',
          retryAfterMs: missingRetryMs,
        });
      }
      // A 401 is being looked into: sending the same key would be refused as well.
      if (key === undefined) throw new KeySuspected(keyring, current, false);
      trace.generation = key.generation;
      let giveRoom = (): void => {};
      const keepRoom = (give: () => void): void => {
        giveRoom = give;
      };
      try {
        const answer = await send(signedWith(key, request, keepRoom), trace);
        if (answer.status === 401) {
          keyring.refused(key, request);
          throw new KeySuspected(keyring, key, true);
        }
        keyring.accepted(key, answer.status, answer.sentMs, request);
        const search = keyring.scrub.leakIn(answer);
        // Of a small answer it is known at once.
        const leaked = search instanceof Promise ? await search : search;
        return leaked === undefined ? answer : afterLeak(keyring, leaked, answer, request.operation);
      } finally {
        // Large answers are searched one after the other: until then each takes its room.
        giveRoom();
      }
    };
}

function signedWith(key: Key, request: UpstreamRequest, keepRoom?: SignedRequest['keepRoom']): SignedRequest {
  return { ...request, key: exposeKey(key), generation: key.generation, keepRoom };
}

/** What is left of an answer that holds a key. @throws GatewayError for any but a 429 */
function afterLeak(keyring: CredentialKeys, leaked: Key, answer: Answer, operation: string): Answer {
  keyring.leaked(leaked, operation);
  // It must close the gate as any other, or callers would go on asking an upstream that wants rest.
  if (answer.status === 429) return { ...answer, headers: {}, body: '' };
  throw new GatewayError('upstream-invalid-response', {
    reason: 'the answer contains the key',
    receivedStatus: answer.status,
  });
}

/**
 * How the keyring checks a key: asks a read once with it and says what came of it. It takes its turn at the gate.
 *
 * @param timeoutMs how long a check may take, its turn included
 */
export function checkThrough(
  gate: Layer<UpstreamRequest, Answer>,
  send: Handler<SignedRequest, Answer>,
  timeoutMs = 10_000,
): KeyCheck {
  return async (key, read) => {
    const { context, release } = timedContext(timeoutMs, checkFlow);
    const request = { ...plainRead('key-check', read.path, context), query: read.query };
    const ask = gate((asked, trace) => send(signedWith(key, asked), trace));
    try {
      return (await ask(request, new Trace(performance.now()))).status;
    } finally {
      release();
    }
  };
}

export interface StartCheck {
  /** The upstream's status, or the problem that there is instead; `undefined` where the check was ended. */
  readonly outcome: Promise<number | GatewayError | undefined>;
  /** Gives up. */
  end(): void;
}

/**
 * One read with the key right after the start, behind all callers' requests, so that the log tells of a refused key
 * before the first caller does. "A 200 confirms a key", as the specification has it of this read.
 *
 * @param send the outbound layers
 * @param ready resolves with `true` once there is a key to check
 * @param timeoutMs how long the check may take, from then on
 */
export function checkKeyAtStart(
  send: Handler<UpstreamRequest, Answer>,
  ready: Promise<boolean>,
  timeoutMs: number,
): StartCheck {
  const ended = new GatewayError('shutting-down');
  let context: FixedContext | undefined;
  let isEnded = false;

  const ask = async (): Promise<number | GatewayError | undefined> => {
    if (!(await ready) || isEnded) return undefined;
    const flow = { name: 'key-check', weight: 1, background: true };
    const own = timedContext(timeoutMs, flow);
    context = own.context;
    try {
      const request = plainRead('list-api-keys', '/users/api-keys/', own.context);
      return (await send(request, new Trace(performance.now()))).status;
    } catch (error) {
      if (error === ended) return undefined;
      return error instanceof GatewayError ? error : new GatewayError('internal-error', { cause: error });
    } finally {
      own.release();
    }
  };

  return {
    outcome: ask(),
    end() {
      isEnded = true;
      context?.end(ended);
    },
  };
}

/** The first sending, one with a new generation, and one with the previous key. */
const maxSends = 3;

/**
 * Sends a request again whose key was refused, once it is known which key to send with. Listed above the gate: each
 * sending takes a turn like any other, in its old place in line, and no request holds a turn while it waits. Such a
 * sending is no retry: it counts against no limit and has no backoff.
 *
 * Throws `upstream-key-rejected` where the key was refused and no better one came in time.
 */
export const retryWithKey: Layer<UpstreamRequest, Answer> = (next) => async (first, trace) => {
  let request = first;
  for (let sends = 1; ; sends++) {
    try {
      return await next(request, trace);
    } catch (error) {
      if (!(error instanceof KeySuspected) || sends === maxSends) throw error;
      // Validators belong to an answer that was fetched with the old key.
      if (await error.settled(request.context)) request = withoutValidators(request);
    }
  }
};

function withoutValidators({ validators: _, ...request }: UpstreamRequest): UpstreamRequest {
  return request;
}

function rejection(finding: string): GatewayErrorOptions {
  return { reason: `the upstream answered 401 to the key, and ${finding}`, receivedStatus: 401 };
}

function rejected(finding: string): GatewayError {
  return new GatewayError('upstream-key-rejected', rejection(finding));
}
