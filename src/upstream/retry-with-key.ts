/**
 * Sends a request again whose key was refused, once it is known which key to send with.
 *
 * It waits above the gate: each sending takes a turn like any other, in its old place in line, and no request holds
 * a turn while it waits. Such a sending is no retry: it counts against no limit and has no backoff.
 */
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Layer } from '../layer.ts';
import { KeySuspected } from './credential.ts';

/** The first sending, one with a new generation, and one with the previous key. */
const maxSends = 3;

/** Throws `upstream-key-rejected` where the key was refused and no better one came in time. */
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
