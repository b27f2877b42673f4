/**
 * The one shape everything on a request's way has, and its composition.
 *
 * A layer gets what comes next and returns a function of the same type. It may answer itself, pass the
 * request on, pass it on again, or change what comes back. Whatever can be answered without waiting is
 * answered without a promise: a fresh cache hit goes from socket to socket in one turn of the event loop.
 */
import type { Trace } from './trace.ts';

/** A value, or a promise of one. */
export type Eventually<T> = T | Promise<T>;

/** Answers a request; writes what it learned about it on the trace. */
export type Handler<Request, Answer> = (request: Request, trace: Trace) => Eventually<Answer>;

/** One behaviour around what comes next. */
export type Layer<Request, Answer> = (next: Handler<Request, Answer>) => Handler<Request, Answer>;

/** Composes layers so that the first listed is the first to see the request and the last to see the answer. */
export function compose<Request, Answer>(
  layers: readonly Layer<Request, Answer>[],
  last: Handler<Request, Answer>,
): Handler<Request, Answer> {
  return layers.reduceRight((next, layer) => layer(next), last);
}

/**
 * Goes on with a result: at once when it is a value, later when it is a promise.
 *
 * @param result what the next handler returned
 * @param onAnswer what to make of it
 * @param onFailure what to make of a rejection; a synchronous throw never gets here, the caller's `try` has it
 */
export function andThen<T, U>(
  result: Eventually<T>,
  onAnswer: (answer: T) => Eventually<U>,
  onFailure?: (error: unknown) => Eventually<U>,
): Eventually<U> {
  // Everything on the way is made by us, so `instanceof` is right for promises (it is not for Fetch objects:
  // @hono/node-server replaces those).
  return result instanceof Promise ? result.then(onAnswer, onFailure) : onAnswer(result);
}
