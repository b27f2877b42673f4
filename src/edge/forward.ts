/** The last inbound layer: makes an upstream request of the caller's, and a reply of the answer. */
import { GatewayError } from '../errors.ts';
import { type Answer, hasNoContent, type UpstreamRequest } from '../exchange/exchange.ts';
import { andThen, type Handler } from '../exchange/layer.ts';
import type { Flow } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';
import { connectionOptions } from '../http/fields.ts';
import type { HoldsCredential } from './authenticate.ts';
import { type CallerContexts, PreferredWaitOver } from './caller-context.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { listCacheFields, type PreparedReply, serverTiming } from './reply-fields.ts';
import { type ContentCoding as Coding, chooseCoding, isNotModified } from './representation.ts';
import { readTraceState } from './request-ids.ts';

export interface ForwardOptions {
  readonly contexts: CallerContexts;
  readonly prepare: (answer: Answer) => PreparedReply;
  /** Names of the caller's fields that go up, lower-case. */
  readonly forwardHeaders: readonly string[];
  /** Of these, the ones that belong to no cache key. */
  readonly unkeyedHeaders: readonly string[];
}

const anonymousFlow: Flow = { name: '', weight: 1, background: false };

/**
 * @throws GatewayError `invalid-request` where a field that would go up holds a credential, and what the outbound
 * layers throw
 */
export function forward(
  options: ForwardOptions,
  holdsCredential: HoldsCredential,
): Handler<InboundRequest, Reply> {
  const { contexts, prepare, forwardHeaders, unkeyedHeaders } = options;
  // In one order, so that gateways whose settings list them in another make the same keys.
  const keyed = forwardHeaders.filter((name) => !unkeyedHeaders.includes(name)).toSorted();
  return function forward(request, trace) {
    const { match, workspace } = request;
    if (match === undefined || workspace === undefined)
      throw new GatewayError('internal-error', { reason: 'no operation was selected' });
    const hopByHop = connectionOptions(request.headers.connection);
    const keyedHeaders = forwardedFields(request, keyed, hopByHop, holdsCredential);
    const headers = forwardedFields(request, unkeyedHeaders, hopByHop, holdsCredential);
    const callerIds = callerIdsOf(request, trace, hopByHop, holdsCredential);
    const context = contexts.open(request, trace.startedMs, request.caller?.flow ?? anonymousFlow);
    const upstreamRequest: UpstreamRequest = {
      operation: match.operation.name,
      path: match.path,
      query: request.query === '' ? '' : `?${request.query}`,
      keyedHeaders,
      headers,
      ids:
        callerIds?.['x-request-id'] === undefined
          ? { 'x-request-id': trace.requestId, ...callerIds }
          : callerIds,
      callerIds,
      cacheControl: request.headers['cache-control'],
      pragma: request.headers.pragma,
      context,
    };
    return andThen(
      workspace.send(upstreamRequest, trace),
      (answer) => {
        context.release();
        request.cacheFields = listCacheFields(trace);
        if (trace.cache?.hit !== true) setTimingFields(request, trace);
        return replyWith(answer, request, prepare(answer), trace.cache?.hit === true);
      },
      (error) => {
        context.release();
        request.cacheFields = listCacheFields(trace);
        setTimingFields(request, trace);
        throw error instanceof PreferredWaitOver ? preferredWaitProblem() : error;
      },
    );
  };
}

function preferredWaitProblem(): GatewayError {
  return new GatewayError('upstream-timeout', {
    detail: 'The time that this request prefers to wait (Prefer: wait) was over before the answer came.',
    reason: 'the wait that the caller prefers is over',
  });
}

/** Says how long each part took of an answer that did not come from memory, to pages of listed origins too. */
function setTimingFields(request: InboundRequest, trace: Trace): void {
  const timing = serverTiming(trace);
  if (timing === '') return;
  request.setHeader('server-timing', timing);
  const page = request.replyHeader('access-control-allow-origin');
  if (page !== undefined) request.setHeader('timing-allow-origin', page);
}

const none: Readonly<Record<string, string>> = Object.freeze({});

function forwardedFields(
  request: InboundRequest,
  names: readonly string[],
  hopByHop: ReadonlySet<string>,
  holdsCredential: HoldsCredential,
): Readonly<Record<string, string>> {
  if (names.length === 0) return none;
  const fields: Record<string, string> = {};
  for (const name of names) {
    const value = request.field(name);
    if (value === undefined || hopByHop.has(name)) continue;
    if (holdsCredential(value, request)) {
      const detail = `The field ${name} holds a credential: send your token in Authorization or X-API-Key alone, and replace the one that was in this field.`;
      throw new GatewayError('invalid-request', { detail, reason: `a credential in the field ${name}` });
    }
    fields[name] = value;
  }
  return fields;
}

/**
 * The ids that the caller chose; `undefined` where it chose none. A `tracestate` means nothing without its `traceparent`
 * (Trace Context section 3.3). One that holds a credential is dropped and the request goes on: tracing must not fail a
 * request.
 */
function callerIdsOf(
  request: InboundRequest,
  { requestId, traceParent }: Trace,
  hopByHop: ReadonlySet<string>,
  holdsCredential: HoldsCredential,
): Readonly<Record<string, string>> | undefined {
  const isTraced = traceParent !== undefined && !hopByHop.has('traceparent');
  const isNamed = request.headers['x-request-id'] === requestId;
  if (!isTraced && !isNamed) return undefined;
  const ids: Record<string, string> = {};
  if (isNamed) ids['x-request-id'] = requestId;
  if (!isTraced) return ids;
  ids['traceparent'] = traceParent;
  const state = readTraceState(request.field('tracestate'));
  if (state !== undefined && !hopByHop.has('tracestate') && !holdsCredential(state, request)) {
    ids['tracestate'] = state;
  }
  return ids;
}

function replyWith(
  answer: Answer,
  request: InboundRequest,
  prepared: PreparedReply,
  isStored: boolean,
): Reply {
  const held = codings.find((coding) => hasAlready(answer, request, prepared, coding, isStored));
  const { common } = prepared;
  if (held !== undefined) return { status: 304, fields: prepared.notModified(held), common, body: null };
  if (answer.status >= 400) {
    request.setHeader('proxy-status', `analytics-gateway; received-status=${answer.status}`);
  }
  const coding = codingFor(answer, request);
  const body = coding === 'identity' ? answer.body : (answer.encoded?.[coding] ?? answer.body);
  return {
    status: answer.status,
    fields: prepared.fields(coding),
    common,
    body: request.method === 'HEAD' || hasNoContent(answer.status) ? null : body,
  };
}

function codingFor({ encoded }: Answer, request: InboundRequest): Coding {
  const accepted = request.headers['accept-encoding'];
  if (encoded === undefined || accepted === undefined) return 'identity';
  if (encoded.want !== undefined && chooseCoding(accepted, anyCoding) !== 'identity') encoded.want();
  return chooseCoding(accepted, { br: encoded.br !== undefined, gzip: encoded.gzip !== undefined });
}

const anyCoding = { br: true, gzip: true };

/** Whether the caller holds this representation, by its own conditions (RFC 9110 section 13). */
function hasAlready(
  answer: Answer,
  { headers }: InboundRequest,
  prepared: PreparedReply,
  coding: Coding,
  isStored: boolean,
): boolean {
  const ifNoneMatch = headers['if-none-match'];
  const ifModifiedSince = headers['if-modified-since'];
  if (ifNoneMatch === undefined && ifModifiedSince === undefined) return false;
  // The tag of a coding that was not made may be the upstream's own tag of another body.
  if (coding !== 'identity' && answer.encoded?.[coding] === undefined) return false;
  const validators = {
    etag: prepared.etag(coding),
    lastModified: prepared.lastModified,
    storedDate: isStored ? prepared.date : undefined,
  };
  return isNotModified(answer.status, { ifNoneMatch, ifModifiedSince }, validators, Date.now());
}

/** A caller may hold the answer in any coding: each has its own tag, and all have the same content. */
const codings: readonly Coding[] = ['identity', 'br', 'gzip'];
