/** Documents for people: what a problem means. */
import { GatewayError, type ProblemCode, problems } from '../errors.ts';
import type { Trace } from '../trace.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { documentFields, listed } from './reply-fields.ts';

const prefix = '/problems/';

export function serveProblem(request: InboundRequest, trace: Trace): Reply {
  const code = request.path.slice(prefix.length);
  const text = problemDocument(code);
  if (text === undefined) throw new GatewayError('unknown-operation');
  trace.operation = 'problem-document';
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    throw new GatewayError('method-not-allowed', { headers: { allow: 'GET, HEAD' } });
  }
  const body = Buffer.from(text);
  return {
    status: 200,
    fields: listed({ ...documentFields, 'content-length': String(body.length) }),
    body: request.method === 'HEAD' ? null : body,
  };
}

/** Ends every request that no route takes. @throws GatewayError `unknown-operation` */
export function refuseUnknown(): never {
  throw new GatewayError('unknown-operation');
}

/** The page about a problem, or `undefined` where there is no problem with this code. */
export function problemDocument(code: string): string | undefined {
  if (!isProblemCode(code)) return undefined;
  const { status, title, help } = problems[code];
  return `${title} (${status} ${code})\n\n${help}\n`;
}

function isProblemCode(code: string): code is ProblemCode {
  return Object.hasOwn(problems, code);
}
