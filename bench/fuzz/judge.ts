/** What the gateway promises whatever is sent to it, as checks of one connection's bytes and of the log. */
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { formsIn } from '../../test/support/secret-forms.ts';
import type { Came } from './connection.ts';
import { type Replies, type Reply, readReplies } from './replies.ts';
import type { FuzzedRequest } from './requests.ts';

export interface Judgement {
  /** What is wrong. */
  readonly faults: readonly string[];
  /** The replies that must have their line in the log: id and status. */
  readonly logged: readonly Logged[];
}

export interface Logged {
  readonly id: string;
  readonly status: number;
}

/** What this listener answers to requests, whatever they are. An upstream's error passes, so `answers` is wider. */
const statuses = {
  public: [200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 414, 421, 429, 431, 502, 503, 504, 505],
  admin: [200, 400, 403, 404, 405, 408, 413, 414, 421, 431, 503, 505],
};
const neverPass = new Set([206, 401]);

export interface Judged extends FuzzedRequest {
  /** The upstream's answer was fuzzed as well. */
  readonly hasAnswer: boolean;
}

export function judge(sent: Judged, came: Came, secrets: readonly string[]): Judgement {
  const read = readReplies(came.bytes, mayBeHead(sent.bytes));
  const faults = [
    ...(read.fault === undefined ? [] : [`a reply that is no HTTP: ${read.fault}`]),
    ...endFaults(sent, came, read),
    ...read.replies.flatMap((reply) => statusFaults(sent, reply)),
    ...secretsIn(came.bytes.toString('latin1'), secrets),
    ...read.replies.flatMap(({ fields, body }) => secretsIn(decoded(fields, body), secrets)),
  ];
  const logged = sent.listener === 'admin' ? [] : read.replies.flatMap(loggedOf);
  return { faults: [...new Set(faults)], logged };
}

/** Whether the bytes so far are whole replies and nothing else. */
export function isWhole(sent: FuzzedRequest, bytes: Buffer): boolean {
  const { replies, fault, isCut } = readReplies(bytes, mayBeHead(sent.bytes));
  return replies.length > 0 && fault === undefined && !isCut;
}

export function secretsIn(text: string, secrets: readonly string[]): string[] {
  return secrets.flatMap((secret, at) =>
    formsIn(text, secret).map((form) => `secret ${at + 1} got out (${form})`),
  );
}

function mayBeHead(bytes: Buffer): boolean {
  return bytes.includes('HEAD');
}

function endFaults(
  { bytes, ending }: FuzzedRequest,
  { hung, wasReset }: Came,
  { replies, isCut }: Replies,
): string[] {
  if (ending === 'leaves') return [];
  if (hung) return ['the connection hung'];
  // A reset overtakes what was sent before it; and who half-closes may count as gone.
  if (wasReset || ending === 'half-closes') return [];
  if (isCut) return ['a reply that is cut'];
  return replies.length === 0 && bytes.includes('\r\n\r\n') ? ['no reply to a whole head'] : [];
}

function statusFaults({ listener, hasAnswer }: Judged, { status, fields, body }: Reply): string[] {
  // An upstream may send this type as well.
  const isProblem =
    fields.get('content-type') === 'application/problem+json' && body.includes('"type":"/problems/');
  if (isProblem && body.includes('"code":"internal-error"')) return ['an internal error'];
  // The upstream's own answers have passed the cache; the gateway's refusals have not.
  const passed = hasAnswer && fields.has('cache-status') && !isProblem;
  const isExpected = passed
    ? (status >= 200 && status < 300) || status === 304 || (status >= 400 && status < 600)
    : statuses[listener].includes(status);
  if (status === 205 && body.length > 0) return ['a 205 with a body (RFC 9110 section 15.3.6)'];
  return isExpected && !(passed && neverPass.has(status)) ? [] : [`the status ${status}`];
}

/** Probes, and what was refused before there was a request, have no id and no line about a request. */
function loggedOf({ status, fields }: Reply): Logged[] {
  const id = fields.get('x-request-id');
  return id === undefined ? [] : [{ id, status }];
}

function decoded(fields: ReadonlyMap<string, string>, body: Buffer): string {
  if (body.length === 0) return '';
  switch (fields.get('content-encoding')) {
    case 'gzip':
      return gunzipSync(body).toString('latin1');
    case 'br':
      return brotliDecompressSync(body).toString('latin1');
    default:
      return '';
  }
}
