/**
 * One exchange on the cache's behalf: asked with its validators where it holds an answer already, a 304 taken for
 * what it means, the answer judged and kept.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import type { Trace } from '../trace.ts';
import type { Variant } from './answer-store.ts';
import { failed, type Keeping, type Outcome } from './keeping.ts';
import { confirms, mayBeDueToValidators, renewed, validatorsOf } from './validation-policy.ts';

/** Whether the answer may be kept: read when it has come, for those who wait may have changed. */
export interface Storing {
  readonly mayStore: boolean;
}

export interface AskingOptions {
  readonly next: Handler<UpstreamRequest, Answer>;
  readonly keeping: Keeping;
  /** How often an operation's answers were purged: what is under way meanwhile is not kept. */
  purgesOf(operation: string): number;
}

/** Never fails: a failure is an outcome. */
export type Ask = (
  request: UpstreamRequest,
  trace: Trace,
  variant: Variant | undefined,
  storing: Storing,
) => Eventually<Outcome>;

export function askUpstream({ next, keeping, purgesOf }: AskingOptions): Ask {
  return (request, trace, variant, storing) => {
    const validators = variant === undefined ? undefined : validatorsOf(variant.answer.headers);
    const purgesBefore = purgesOf(request.operation);

    const fail = (error: unknown): Outcome => failed(request, error, trace.attempts > 0);
    const keep = (answer: Answer, forwardStatus: number | undefined): Outcome => {
      const mayStore = storing.mayStore && purgesOf(request.operation) === purgesBefore;
      return keeping.judge(request, answer, forwardStatus, mayStore);
    };
    const receive = (answer: Answer): Eventually<Outcome> => {
      const isNotModified = answer.status === 304;
      if (variant === undefined || validators === undefined) {
        return isNotModified ? fail(unasked()) : keep(answer, undefined);
      }
      if (isNotModified && confirms(answer, variant.answer))
        return keep(renewed(variant.answer, answer), 304);
      if (!isNotModified && !mayBeDueToValidators(answer.status)) return keep(answer, undefined);
      // It speaks of another body than ours, or of our validators, which are in no key: ask for the whole.
      return andThen(
        next(request, trace),
        (whole) => (whole.status === 304 ? fail(unasked()) : keep(whole, undefined)),
        fail,
      );
    };
    // What goes wrong while an answer is judged is an outcome like any other: nobody is left waiting.
    const received = (answer: Answer): Eventually<Outcome> => {
      try {
        return receive(answer);
      } catch (error) {
        return fail(error);
      }
    };

    let answer: Eventually<Answer>;
    try {
      answer = next(validators === undefined ? request : { ...request, validators }, trace);
    } catch (error) {
      return fail(error);
    }
    return andThen(answer, received, fail);
  };
}

function unasked(): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a 304 that nobody asked for',
    receivedStatus: 304,
  });
}
