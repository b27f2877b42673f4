/** From a raw request target to an operation this caller may do; everything else is refused here. */

import { isGranted } from '../callers/caller.ts';
import { GatewayError } from '../errors.ts';
import type { Layer } from '../layer.ts';
import { type OperationMatch, problemOfQuery } from '../operations.ts';
import type { HoldsCredential } from './credential-search.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { announcesBody } from './message-body.ts';

/** Path and query together. */
const maxTargetBytes = 8 * 1_024;

/** Node's own limit hides what exceeds it (CVE-2026-58044), so it is off and this one counts. */
const maxHeaderFields = 100;

const prefix = '/api';

const credentialInUrl =
  'A credential is never sent in the URL, where logs keep it: send your token in a header, and replace the one that was in this URL.';

/**
 * Refuses what is not a read that this caller may do, and a credential in the URL.
 *
 * @throws GatewayError `unknown-operation`, `method-not-allowed`, `invalid-request`, `uri-too-long`,
 * `caller-forbidden`
 */
export function selectOperation(
  matchPath: (path: string) => OperationMatch | undefined,
  holdsCredential: HoldsCredential,
): Layer<InboundRequest, Reply> {
  function refuseCredential(urlPart: string, request: InboundRequest): void {
    if (holdsCredential(urlPart, request)) {
      throw new GatewayError('invalid-request', {
        detail: credentialInUrl,
        reason: 'a credential in the URL',
      });
    }
  }

  return (next) =>
    function select(request, trace) {
      if (request.target.length > maxTargetBytes) throw new GatewayError('uri-too-long');
      if (request.rawHeaders.length > 2 * maxHeaderFields) {
        throw invalid(`The request has more than ${maxHeaderFields} header fields.`);
      }
      const match = request.path.startsWith(prefix)
        ? matchPath(request.path.slice(prefix.length))
        : undefined;
      // An operation without `:name` has one path, so a plain read is spared the search.
      const isFixedPath = match !== undefined && match.path === match.operation.path;
      if (!isFixedPath) refuseCredential(request.path, request);
      if (request.query !== '') refuseCredential(request.query, request);
      if (match === undefined) throw new GatewayError('unknown-operation');
      trace.operation = match.operation.name;
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        throw new GatewayError('method-not-allowed', { headers: { allow: 'GET, HEAD' } });
      }
      if (announcesBody(request.headers)) throw invalid('A read has no body.', { connection: 'close' });
      const problem = problemOfQuery(request.query);
      if (problem !== undefined) throw invalid(problem);
      if (request.caller === undefined || !isGranted(request.caller, match.operation.name)) {
        throw new GatewayError('caller-forbidden', { reason: `not granted: ${match.operation.name}` });
      }
      request.match = match;
      return next(request, trace);
    };
}

function invalid(detail: string, headers?: Readonly<Record<string, string>>): GatewayError {
  return new GatewayError('invalid-request', headers === undefined ? { detail } : { detail, headers });
}
