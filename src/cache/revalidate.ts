/**
 * One exchange on behalf of the cache: a plain read, or a revalidation where an answer with validators is stored. The
 * response is admitted to the store before it is returned.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Variant } from './answer-store.ts';
import { failedOutcome, type Outcome, type ResponseAdmission } from './store-response.ts';
import { confirms, mayBeDueToValidators, renewed, validatorsOf } from './validation.ts';

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
) => Promise<Outcome>;

export function fetchOrRevalidate({ next, admission, purgesOf }: FetchAnswerOptions): FetchAnswer {
  return async (request, trace, variant, storing) => {
    // Only a 200 is worth asking about: the same error again would not tell whether it is about the validators.
    const validators = variant?.answer.status === 200 ? validatorsOf(variant.answer.headers) : undefined;
    const purgesBefore = purgesOf(request.operation);

    const admit = (answer: Answer, forwardStatus?: 304): Outcome => {
      if (answer.status === 304) throw unaskedNotModified();
      const mayStore = storing.mayStore && purgesOf(request.operation) === purgesBefore;
      return admission.admit(request, answer, forwardStatus, mayStore);
    };
    try {
      const answer = await next(validators === undefined ? request : { ...request, validators }, trace);
      const isNotModified = answer.status === 304;
      if (variant !== undefined && validators !== undefined) {
        if (isNotModified && confirms(answer, variant.answer))
          return admit(renewed(variant.answer, answer), 304);
        if (isNotModified || mayBeDueToValidators(answer.status)) {
          // It is about another body than the stored one, or about the validators, which are in no key: read without them.
          return admit(await next(request, trace));
        }
      }
      return admit(answer);
    } catch (error) {
      // A fault while the answer is admitted is an outcome too, so that every subscriber gets one.
      return failedOutcome(request, error, trace.attempts > 0);
    }
  };
}

function unaskedNotModified(): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a 304 to a request without validators',
    receivedStatus: 304,
  });
}
