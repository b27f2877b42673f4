/** Documents for people: what a problem means. Everything else that is no operation ends here as unknown. */
import { GatewayError, type ProblemCode, problems } from '../errors.ts';
import type { Trace } from '../trace.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { documentFields, listed } from './reply-fields.ts';

const prefix = '/problems/';

export function serveDocument(request: InboundRequest, trace: Trace): Reply {
  const code = request.path.startsWith(prefix) ? request.path.slice(prefix.length) : '';
  if (!isProblemCode(code)) throw new GatewayError('unknown-operation');
  trace.operation = 'problem-document';
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw new GatewayError('method-not-allowed', { headers: { allow: 'GET, HEAD' } });
  }
  const { status, title, help } = problems[code];
  const body = Buffer.from(`${title} (${status} ${code})\n\n${help}\n`);
  return {
    status: 200,
    fields: listed({ ...documentFields, 'content-length': String(body.length) }),
    body: request.method === 'HEAD' ? null : body,
  };
}

function isProblemCode(code: string): code is ProblemCode {
  return Object.hasOwn(problems, code);
}
