/** One line per request, written when its reply is known: facts only, never a header or query value. */
import { GatewayError } from '../errors.ts';
import { andThen, type Layer } from '../layer.ts';
import type { CacheFacts, Trace } from '../trace.ts';
import type { InboundRequest, Reply } from './inbound.ts';

/** A request's line. Members that do not apply are left out. */
export interface AccessLine {
  readonly requestId: string;
  readonly caller: string | undefined;
  readonly by: string | undefined;
  readonly note: string | undefined;
  readonly method: string;
  readonly operation: string | undefined;
  readonly status: number;
  /** The problem's code, where the caller got one. */
  readonly problem: string | undefined;
  /** Why, richly: for us, not for the caller. */
  readonly reason: string | undefined;
  readonly cause: string | undefined;
  readonly cache: string | undefined;
  readonly attempts: number;
  readonly upstreamStatus: number | undefined;
  readonly generation: number | undefined;
  readonly gate: string | undefined;
  readonly waitedMs: number;
  readonly upstreamMs: number;
  readonly totalMs: number;
}

/**
 * @param write takes the line and the reply's status; must not throw
 * @param begin told of each request before anything else is done for it: lines follow one for one
 */
export function logAccess(
  write: (line: AccessLine) => void,
  begin: () => void = () => {},
): Layer<InboundRequest, Reply> {
  return (next) =>
    function log(request, trace) {
      begin();
      return andThen(next(request, trace), (reply) => {
        write(lineOf(request, reply, trace));
        return reply;
      });
    };
}

function lineOf(request: InboundRequest, reply: Reply, trace: Trace): AccessLine {
  const { failure } = trace;
  return {
    requestId: trace.requestId,
    caller: trace.caller,
    by: trace.recognisedBy,
    note: trace.note,
    method: request.method,
    operation: trace.operation,
    status: reply.status,
    problem: failure instanceof GatewayError ? failure.code : undefined,
    reason: failure instanceof Error ? failure.message : undefined,
    cause: failure instanceof Error && failure.cause !== undefined ? describe(failure.cause) : undefined,
    cache: outcomeOf(trace.cache),
    attempts: trace.attempts,
    upstreamStatus: trace.upstreamStatus,
    generation: trace.generation,
    gate: trace.gate,
    waitedMs: rounded(trace.waitedMs),
    upstreamMs: rounded(trace.upstreamMs),
    totalMs: rounded(performance.now() - trace.startedMs),
  };
}

/** The cache's part in one word. */
function outcomeOf(cache: CacheFacts | undefined): string | undefined {
  if (cache === undefined) return undefined;
  if (cache.detail !== undefined) return cache.detail;
  if (cache.hit) return 'hit';
  if (cache.collapsed === true) return 'joined';
  if (cache.forwardStatus === 304) return 'revalidated';
  return cache.forwarded === 'bypass' || cache.forwarded === 'request' ? cache.forwarded : 'miss';
}

function describe(cause: unknown): string {
  return cause instanceof Error ? `${cause.name}: ${cause.message}` : typeof cause;
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}
