/**
 * Gives every request its ids: the caller's own where they fit into a log line, and the trace fields that may go up (W3C
 * Trace Context). These are in no cache key, so nothing but the exact form passes: an upstream that refuses an odd or
 * overlong field would give its answer to all callers that share the read. Pure but for a counter.
 */
import { randomBytes } from 'node:crypto';
import type { Layer } from '../exchange/layer.ts';
import { trimBlanks } from '../http/fields.ts';
import type { HoldsCredential } from './authenticate.ts';
import type { InboundRequest, Reply } from './inbound.ts';
import { requestIdGrammar } from './log-members.ts';

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
      const parent = readTraceParent(request.field('traceparent'));
      if (parent !== undefined && !holdsCredential(parent, request)) trace.traceParent = parent;
      return next(request, trace);
    };
}

const parent =
  /^(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?$/;

/**
 * The `traceparent` to send for the one that came; `undefined` where it is invalid (section 3.2).
 *
 * A later version may carry more members, of any length. It is sent as the version we know, with the one flag that
 * all versions share: `sampled` (section 3.2.4).
 */
export function readTraceParent(value: string | undefined): string | undefined {
  const found = value === undefined ? null : parent.exec(value);
  if (found === null) return undefined;
  const [, version, ids, flags = '00', more] = found;
  if (version === '00') return more === undefined ? value : undefined;
  return `00-${ids}-${Number.parseInt(flags, 16) % 2 === 1 ? '01' : '00'}`;
}

/** The length that every participant must be able to carry (section 3.3.1.5), and the most that we do. */
const maxStateLength = 512;
const maxStateMembers = 32;

const stateMember =
  /^([a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/**
 * The `tracestate` to send for the one that came, repeated lines joined by commas; `undefined` where it is empty,
 * too long or malformed (section 3.3). It is dropped as a whole: a part of it would be a statement that its sender did not make.
 */
export function readTraceState(value: string | undefined): string | undefined {
  if (value === undefined || value.length > maxStateLength) return undefined;
  const parts = value.split(',');
  if (parts.length > maxStateMembers) return undefined;
  const keys = new Set<string>();
  for (const part of parts) {
    const member = trimBlanks(part);
    // Empty members are allowed, and count (section 3.3.1.1).
    if (member === '') continue;
    const key = stateMember.exec(member)?.[1];
    if (key === undefined || keys.has(key)) return undefined;
    keys.add(key);
  }
  return keys.size > 0 ? value : undefined;
}
