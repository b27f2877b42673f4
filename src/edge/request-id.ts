/** Gives every request its ids: the caller's own where they fit into a log line. */
import { randomBytes } from 'node:crypto';
import type { Layer } from '../exchange/layer.ts';
import type { HoldsCredential } from './credential-search.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { requestIdGrammar } from './log-members.ts';
import { traceParentOf } from './trace-context.ts';

/** Of this process; a counter follows it. Random ids one by one would cost as much as looking up the answer. */
const prefix = `${randomBytes(12).toString('base64url')}-`;
let count = 0;

/** An id that no caller chose. */
export function newRequestId(): string {
  count += 1;
  return prefix + count.toString(36);
}

/** Whether an id may be one of `newRequestId`: it tells nothing but a number of up to eight digits. */
export function isOwnRequestId(id: string): boolean {
  return id.startsWith(prefix) && /^[0-9a-z]{1,8}$/.test(id.slice(prefix.length));
}

/**
 * Takes a caller's own id over where it is fit to be one, and its place in a distributed trace. What holds a credential
 * is not: it would stand in the log and in the reply.
 */
export function identifyRequest(holdsCredential: HoldsCredential): Layer<InboundRequest, Reply> {
  return (next) =>
    function identify(request, trace) {
      const given = request.headers['x-request-id'];
      const isTaken =
        typeof given === 'string' && requestIdGrammar.test(given) && !holdsCredential(given, request);
      trace.requestId = isTaken ? given : newRequestId();
      request.setHeader('x-request-id', trace.requestId);
      const parent = traceParentOf(request.field('traceparent'));
      if (parent !== undefined && !holdsCredential(parent, request)) trace.traceParent = parent;
      return next(request, trace);
    };
}
