/** From a raw request target to an operation this caller may do; everything else is refused here. */
import { mayDo } from '../callers/caller.ts';
import { GatewayError } from '../errors.ts';
import type { Layer } from '../layer.ts';
import { type OperationMatch, problemOfQuery } from '../operations.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { announcesBody } from './message-body.ts';

/** Path and query together. */
const maxTargetBytes = 8 * 1_024;

/** Node's own limit hides what exceeds it (CVE-2026-58044), so it is off and this one counts. */
const maxHeaderFields = 100;

const prefix = '/api';

export function selectOperation(
  matchPath: (path: string) => OperationMatch | undefined,
): Layer<InboundRequest, Reply> {
  return (next) =>
    function select(request, trace) {
      if (request.target.length > maxTargetBytes) throw new GatewayError('uri-too-long');
      if (request.rawHeaders.length > 2 * maxHeaderFields) {
        throw invalid(`The request has more than ${maxHeaderFields} header fields.`);
      }
      const match = request.path.startsWith(prefix)
        ? matchPath(request.path.slice(prefix.length))
        : undefined;
      if (match === undefined) throw new GatewayError('unknown-operation');
      trace.operation = match.operation.name;
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        throw new GatewayError('method-not-allowed', { headers: { allow: 'GET, HEAD' } });
      }
      if (announcesBody(request.headers)) throw invalid('A read has no body.', { connection: 'close' });
      const problem = problemOfQuery(request.query);
      if (problem !== undefined) throw invalid(problem);
      if (request.caller === undefined || !mayDo(request.caller, match.operation.name)) {
        throw new GatewayError('caller-forbidden', { reason: `not granted: ${match.operation.name}` });
      }
      request.match = match;
      return next(request, trace);
    };
}

function invalid(detail: string, headers?: Readonly<Record<string, string>>): GatewayError {
  return new GatewayError('invalid-request', headers === undefined ? { detail } : { detail, headers });
}
