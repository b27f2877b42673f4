/**
 * One exchange on behalf of the cache: a plain read, or a revalidation where an answer with validators is stored. The
 * response is admitted to the store before it is returned.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import type { Trace } from '../trace.ts';
import type { Variant } from './answer-store.ts';
import { failedOutcome, type Outcome, type ResponseAdmission } from './store-response.ts';
import { confirms, mayBeDueToValidators, renewed, validatorsOf } from './validation-policy.ts';

/** Whether the answer may be stored. Read when the answer has come: requests that joined meanwhile may have changed it. */
export interface Storing {
  readonly mayStore: boolean;
}

export interface FetchAnswerOptions {
  readonly next: Handler<UpstreamRequest, Answer>;
  readonly admission: Pick<ResponseAdmission, 'admit'>;
  /** How often an operation's answers were purged: an exchange that began before a purge is not stored. */
  purgesOf(operation: string): number;
}

/**
 * Never fails: a failure is an outcome.
 *
 * @param variant the stored answer to revalidate
 */
export type FetchAnswer = (
  request: UpstreamRequest,
  trace: Trace,
  variant: Variant | undefined,
  storing: Storing,
) => Eventually<Outcome>;

export function fetchOrRevalidate({ next, admission, purgesOf }: FetchAnswerOptions): FetchAnswer {
  return (request, trace, variant, storing) => {
    const validators = variant === undefined ? undefined : validatorsOf(variant.answer.headers);
    const purgesBefore = purgesOf(request.operation);

    const fail = (error: unknown): Outcome => failedOutcome(request, error, trace.attempts > 0);
    const admit = (answer: Answer, forwardStatus: number | undefined): Outcome => {
      const mayStore = storing.mayStore && purgesOf(request.operation) === purgesBefore;
      return admission.admit(request, answer, forwardStatus, mayStore);
    };
    const receive = (answer: Answer): Eventually<Outcome> => {
      const isNotModified = answer.status === 304;
      if (variant === undefined || validators === undefined) {
        return isNotModified ? fail(unaskedNotModified()) : admit(answer, undefined);
      }
      if (isNotModified && confirms(answer, variant.answer))
        return admit(renewed(variant.answer, answer), 304);
      if (!isNotModified && !mayBeDueToValidators(answer.status)) return admit(answer, undefined);
      // It is about another body than the stored one, or about the validators, which are in no key: read without them.
      return andThen(
        next(request, trace),
        (plain) => (plain.status === 304 ? fail(unaskedNotModified()) : admit(plain, undefined)),
        fail,
      );
    };
    // A fault while the answer is admitted is an outcome too, so that every subscriber gets one.
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

function unaskedNotModified(): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a 304 to a request without validators',
    receivedStatus: 304,
  });
}
