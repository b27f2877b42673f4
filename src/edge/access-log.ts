/**
 * One line per request, written when its reply is known: facts only, never a credential or a query's value.
 *
 * Of a refused request it also says whose it was: the peer's address, the path, and the host or origin where that was
 * refused. They are a caller's text, so they are searched: a credential that was put in the wrong place is not written
 * down. How they are shown stands in `log-members.ts`.
 */
import { listBeginnings, listReadings } from '../callers/credential.ts';
import { GatewayError } from '../errors.ts';
import { toHundredths } from '../exchange/figures.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import { canonicalAddress } from '../http/address.ts';
import { trimBlanks } from '../http/fields.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { credentialInstead, logMembers, shownCause, shownLibraryText } from './log-members.ts';
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

export interface RefusalFields {
  /** The peer's address; left out on a Unix socket. */
  readonly peer?: string;
  /** Without its query. */
  readonly path?: string;
  readonly host?: string;
  readonly origin?: string;
}

/** A caller's text with which it may have sent a credential. */
export interface CallerText {
  readonly peer: string | undefined;
  /** In any form: only its path is logged, without scheme, authority and query. */
  readonly target?: string | undefined;
  readonly host?: string | undefined;
  readonly origin?: string | undefined;
}

export interface SearchOptions {
  /** Whether a text holds the upstream key. */
  readonly isSecret: (text: string) => boolean;
  /** Names and values in turn, as they came: a credential among them is searched for by value. */
  readonly rawHeaders: readonly string[];
}

/** A longer text is neither logged nor searched: to search it could take all of the gateway's time. */
const maxSearchedCharacters = 1_024;

/** The first 16 characters of our tokens, damaged ones too. */
const tokenShape = /wag_[A-Za-z0-9_-]{16}/;

/** A value this short would be found in harmless text. */
const leastCharacters = 8;
/** More values than this are not searched for: then nothing that a caller wrote is logged. */
const maxCredentials = 32;

/** Gives what may be logged of a refused request. */
export function refusalFields(
  { peer, target, host, origin }: CallerText,
  options: SearchOptions,
): RefusalFields {
  const credentials = presentedCredentials(options.rawHeaders);
  const isCredential = (reading: string): boolean =>
    tokenShape.test(reading) || holdsJwt(reading) || credentials.some((value) => reading.includes(value));
  const holdsAny = (text: string): boolean =>
    credentials.length > maxCredentials || options.isSecret(text) || listReadings(text).some(isCredential);
  const fields: Record<string, string> = {};
  if (peer !== undefined) fields['peer'] = canonicalAddress(peer);
  const note = (name: 'path' | 'host' | 'origin', text: string | undefined): void => {
    if (text === undefined) return;
    // Searched before anything is left out: a part of a credential would not be found.
    if (text.length > maxSearchedCharacters) fields[name] = `long, ${text.length} characters`;
    else fields[name] = holdsAny(text) ? credentialInstead : String(logMembers[name].show(text));
  };
  note('path', target?.split(/[?#]/, 1)[0]);
  note('host', host);
  note('origin', origin);
  return fields;
}

/** The peer and path of a request that was refused with this problem, and its host or origin where that was refused. */
export function fieldsOfRefusedRequest(
  { code }: GatewayError,
  { peer, path, headers, rawHeaders }: Pick<InboundRequest, 'peer' | 'path' | 'headers' | 'rawHeaders'>,
  isSecret: (text: string, path: string) => boolean,
): RefusalFields {
  const texts = {
    peer,
    target: path,
    host: code === 'host-not-allowed' ? headers.host : undefined,
    origin: code === 'origin-not-allowed' ? headers.origin : undefined,
  };
  return refusalFields(texts, { isSecret: (text) => isSecret(text, path), rawHeaders });
}

/** What a request's span says of its sender and target: searched like a line of the log, and for each traced request. */
export function fieldsOfTracedRequest(
  { peer, path, headers, rawHeaders }: Pick<InboundRequest, 'peer' | 'path' | 'headers' | 'rawHeaders'>,
  isSecret: (text: string, path: string) => boolean,
): RefusalFields {
  const texts = { peer, target: path, host: headers.host };
  return refusalFields(texts, { isSecret: (text) => isSecret(text, path), rawHeaders });
}

/** Values of fields that carry credentials, without their scheme. */
function presentedCredentials(rawHeaders: readonly string[]): readonly string[] {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!/authorization$|key$|token$|assertion$|^cookie$/i.test(name)) continue;
    values.push(...(rawHeaders[index + 1] ?? '').split(/[\s;,]+/));
  }
  return listBeginnings(values.filter((value) => value.length >= leastCharacters));
}

/**
 * Whether a text holds the beginning of a JWT: `eyJ` and 8 characters, a dot, and 8 more. Word by word: an expression
 * would begin again at each `eyJ` of a long word.
 */
function holdsJwt(text: string): boolean {
  return text.split(/[^A-Za-z0-9_.-]+/).some((word) => {
    const parts = word.split('.');
    return parts.some((part, at) => {
      const start = part.indexOf('eyJ');
      return start !== -1 && part.length - start >= 11 && (parts[at + 1] ?? '').length >= 8;
    });
  });
}

/** So much of a refused head is read: Node's parser takes no more. */
const maxHeadBytes = 16 * 1_024;

/** What can be read of a head that the parser refused: its target and its fields, as far as they are there. */
export function readRefusedHead(
  packet: Buffer,
  errorAt: number,
): { target: string | undefined; rawHeaders: string[] } {
  // Good requests may come before it in the same packet.
  const before = errorAt > 0 ? packet.lastIndexOf('\r\n\r\n', errorAt - 1, 'latin1') : -1;
  const start = before === -1 ? 0 : before + 4;
  const [first = '', ...lines] = packet.toString('latin1', start, start + maxHeadBytes).split(/[\r\n]+/);
  return { target: targetIn(first), rawHeaders: lines.flatMap(fieldIn) };
}

/** The target in a request line; `undefined` for any other line. */
function targetIn(line: string): string | undefined {
  const [method = '', target = '', version = ''] = line.split(' ', 3);
  const isRequest = /^[A-Za-z]{1,32}$/.test(method) && version.startsWith('HTTP') && !/\s/.test(target);
  return isRequest && /^(?:https?:\/)?\//i.test(target) ? target : undefined;
}

/** Name and value in a field line; nothing for any other line. */
function fieldIn(line: string): string[] {
  const colon = line.indexOf(':');
  const name = line.slice(0, Math.max(colon, 0));
  return /^[A-Za-z0-9_-]+$/.test(name) ? [name, trimBlanks(line.slice(colon + 1))] : [];
}
