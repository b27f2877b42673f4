/** The one place where a failure becomes what a caller sees: problem details (RFC 9457). */
import { GatewayError, isProblemCode, problems } from '../errors.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import { CallerLeft } from './caller-context.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { listed, problemFields } from './reply-fields.ts';

/** nginx's status for a caller that left; it is logged and never sent. */
const callerLeftStatus = 499;

/** Turns everything thrown below into a problem. Listed above all layers that may fail. */
export function renderProblems(): Layer<InboundRequest, Reply> {
  return (next) =>
    function render(request, trace) {
      const onFailure = (error: unknown): Reply => problemReply(error, request, trace);
      try {
        return andThen(next(request, trace), (reply) => reply, onFailure);
      } catch (error) {
        return onFailure(error);
      }
    };
}

function problemReply(thrown: unknown, request: InboundRequest, trace: Trace): Reply {
  trace.failure = thrown;
  if (thrown instanceof CallerLeft) return { status: callerLeftStatus, fields: [], body: null };
  const error =
    thrown instanceof GatewayError ? thrown : new GatewayError('internal-error', { cause: thrown });
  const { status } = problems[error.code];
  const retryAfter = retryAfterSeconds(error);
  const body = Buffer.from(problemText(error, trace.requestId, trace.workspace));
  if (retryAfter !== undefined) request.setHeader('retry-after', String(retryAfter));
  const proxyStatus = proxyStatusOf(error);
  if (proxyStatus !== undefined) request.setHeader('proxy-status', proxyStatus);
  return {
    status,
    fields: listed({
      ...problemFields,
      ...error.headers,
      'content-length': String(body.length),
    }),
    body: request.method === 'HEAD' ? null : body,
  };
}

/** The body of problem details (RFC 9457) for a failure of this request. */
export function problemText(error: GatewayError, requestId: string, workspace?: string): string {
  const { status, title, help } = problems[error.code];
  return JSON.stringify({
    type: `/problems/${error.code}`,
    title,
    status,
    // What is wrong with this request where that is known, else what the problem means and what to do.
    detail: error.detail ?? help,
    code: error.code,
    requestId,
    workspace,
    retryAfter: retryAfterSeconds(error),
  });
}

/** The page about a problem, for people; `undefined` where there is no problem with this code. */
export function problemPage(code: string): string | undefined {
  if (!isProblemCode(code)) return undefined;
  const { status, title, help } = problems[code];
  return `${title} (${status} ${code})\n\n${help}\n`;
}

function retryAfterSeconds({ retryAfterMs }: GatewayError): number | undefined {
  return retryAfterMs === undefined ? undefined : Math.max(1, Math.ceil(retryAfterMs / 1_000));
}

/** What `Proxy-Status` says of a failure (RFC 9209): only for failures on the way to the upstream. */
function proxyStatusOf(error: GatewayError): string | undefined {
  const parameters = [
    error.proxyError === undefined ? '' : `; error=${error.proxyError}`,
    error.receivedStatus === undefined ? '' : `; received-status=${error.receivedStatus}`,
  ].join('');
  return parameters === '' ? undefined : `analytics-gateway${parameters}`;
}
