/** One line per request, written when its reply is known: facts only, never a credential or a query's value. */

import { GatewayError } from '../errors.ts';
import { toHundredths } from '../exchange/durations.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { logMembers, shownCause, shownLibraryText } from './log-members.ts';
import { fieldsOfRefusedRequest, type RefusalFields } from './refusal-fields.ts';
import { cacheWord } from './reply-fields.ts';

/** A request's line. Members that do not apply are left out. */
export interface AccessLine {
  readonly requestId: string;
  /** Of the distributed trace that the caller named in `traceparent`, or that began here. */
  readonly traceId: string | undefined;
  /** The same by the names of OpenTelemetry for logs; `traceId` is the name of version 0.1.0, and goes after 0.2. */
  readonly trace_id: string | undefined;
  /** Of the request's own span; left out where no spans are exported. */
  readonly span_id: string | undefined;
  readonly trace_flags: string | undefined;
  readonly caller: string | undefined;
  /** The `sub` of a JWT. */
  readonly subject: string | undefined;
  readonly by: string | undefined;
  readonly note: string | undefined;
  /** The codes of the problems that a caller without `enforce` was spared, between blanks. */
  readonly would: string | undefined;
  readonly method: string;
  /** Left out for the unnamed workspace. */
  readonly workspace: string | undefined;
  readonly operation: string | undefined;
  readonly status: number;
  /** The problem's code, where the caller got one. */
  readonly problem: string | undefined;
  /** Why it failed, in more detail than the caller gets. */
  readonly reason: string | undefined;
  readonly cause: string | undefined;
  /** Of a request that the gateway refused with a 4xx. The log writes its members into the line itself. */
  readonly refusal: RefusalFields | undefined;
  readonly cache: string | undefined;
  readonly attempts: number;
  readonly upstreamStatus: number | undefined;
  readonly generation: number | undefined;
  readonly gate: string | undefined;
  readonly waitedMs: number;
  readonly upstreamMs: number;
  readonly totalMs: number;
}

export interface AccessLogOptions {
  /** Takes the line; must not throw. */
  readonly write: (line: AccessLine, trace: Trace, request: InboundRequest) => void;
  /** Called for each request before anything else is done for it; `write` is called once for each. */
  readonly begin: (trace: Trace) => void;
  /** Whether a text of a request to this path holds the upstream key: such a text is not logged. */
  readonly isSecret: (text: string, path: string) => boolean;
}

/** Writes one line for each request. */
export function logAccess({ write, begin, isSecret }: AccessLogOptions): Layer<InboundRequest, Reply> {
  return (next) =>
    function log(request, trace) {
      begin(trace);
      return andThen(next(request, trace), (reply) => {
        write(lineOf(request, reply, trace, isSecret), trace, request);
        return reply;
      });
    };
}

function lineOf(
  request: InboundRequest,
  reply: Reply,
  trace: Trace,
  isSecret: AccessLogOptions['isSecret'],
): AccessLine {
  const { failure, traceId } = trace;
  return {
    requestId: trace.requestId,
    traceId,
    trace_id: traceId,
    span_id: trace.span?.spanId,
    trace_flags: trace.traceFlags,
    caller: trace.caller,
    subject: trace.subject === undefined ? undefined : String(logMembers.subject.show(trace.subject)),
    by: trace.authenticatedBy,
    note: trace.note,
    would: trace.would,
    method: request.method,
    workspace: trace.workspace,
    operation: trace.operation,
    status: reply.status,
    problem: failure instanceof GatewayError ? failure.code : undefined,
    reason: failure instanceof Error ? reasonOf(failure) : undefined,
    cause: failure instanceof Error && failure.cause !== undefined ? shownCause(failure.cause) : undefined,
    refusal:
      failure instanceof GatewayError && failure.status < 500
        ? fieldsOfRefusedRequest(failure, request, isSecret)
        : undefined,
    cache: cacheWord(trace.cache),
    attempts: trace.attempts,
    upstreamStatus: trace.upstreamStatus,
    generation: trace.generation,
    gate: trace.gate,
    waitedMs: toHundredths(trace.waitedMs),
    upstreamMs: toHundredths(trace.upstreamMs),
    totalMs: toHundredths(performance.now() - trace.startedMs),
  };
}

function reasonOf(failure: Error): string {
  return failure instanceof GatewayError ? failure.message : shownLibraryText(failure.message);
}
