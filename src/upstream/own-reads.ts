/** Reads of our own, on no caller's behalf: a check of a key, a check of the settings, the first read after the start. */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import { type FixedContext, type RequestContext, timedContext } from '../exchange/request-context.ts';
import { Trace } from '../exchange/trace.ts';

/** A read without query and fields. */
export function plainRead(operation: string, path: string, context: RequestContext): UpstreamRequest {
  return {
    operation,
    path,
    query: '',
    keyedHeaders: {},
    headers: {},
    ids: {},
    callerIds: undefined,
    cacheControl: undefined,
    pragma: undefined,
    context,
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
