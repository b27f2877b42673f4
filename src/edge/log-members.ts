/**
 * The one table of what stands in a line of the log: each member, whose text it is, and how it is shown. What others wrote is
 * shown where it keeps to its member's grammar; else by its length alone, because a text that a grammar refused may hold
 * what its sender meant for another place, as a credential behind a lost line end. Pure: no `this`, no I/O, no clock.
 */
import { METHODS } from 'node:http';
import { isIP } from 'node:net';
import { hostName } from '../http/address.ts';

/**
 * Whose text a member is. `operator`: of settings and files of the gateway. `issuer`: of who signs company logins.
 * `library`: of Node, a library, a server.
 */
type Author = 'us' | 'operator' | 'issuer' | 'caller' | 'library';

interface LogMember {
  readonly author: Author;
  /** What is shown as it came, in words. */
  readonly grammar: string;
  readonly show: (value: unknown) => unknown;
}

/** Instead of a text in which a credential was found. */
export const credentialInstead = '[a credential]';

/** Fit for a log line, as a caller's own `X-Request-ID`. */
export const requestIdGrammar = /^[A-Za-z0-9._~:+/=-]{1,128}$/;

const alreadyShown = /^(?:(?:malformed|long), \d+ characters|\[a credential\])$/;

/** Says of a text that it does not keep to its grammar, and no more. */
function malformed(text: string): string {
  return alreadyShown.test(text) ? text : `malformed, ${text.length} characters`;
}

/** The longest path that is shown whole. */
const maxPathCharacters = 200;
/** The characters of the paths that operations have; what else may stand in a path (RFC 3986) can begin a parameter. */
const pathGrammar = /^(?:\/[A-Za-z0-9._~-]*)+$/;
const absoluteTarget = /^https?:\/\/[^/]*(.*)$/is;
const portAtEnd = /:\d{1,5}$/;

/** The path of a request target, the host and port of a CONNECT. The query is not looked at. */
function shownPath(target: string): string {
  const [text = ''] = target.split(/[?#]/, 1);
  const [, rest = text] = absoluteTarget.exec(text) ?? [];
  const path = rest === '' ? '/' : rest;
  if (text === '*') return text;
  if (pathGrammar.test(path)) return path.slice(0, maxPathCharacters);
  return portAtEnd.test(text) && !text.includes('/') ? shownHost(text) : malformed(path);
}

/** RFC 3986 section 3.2.1. */
const userinfo = /^[A-Za-z0-9._~!$&'()*+,;=:%-]*$/;
/** RFC 1035 section 2.3.4. */
const maxLabelCharacters = 63;
/** Names of machines are shorter than credentials are. */
const maxSingleLabelCharacters = 24;

/** Host and port of an authority, without the user and password before them. */
function shownHost(text: string): string {
  const at = text.lastIndexOf('@');
  const authority = userinfo.test(text.slice(0, Math.max(at, 0))) ? text.slice(at + 1) : text;
  const name = hostName(authority);
  if (name === undefined) return malformed(text);
  const labels = name.split('.');
  const most = labels.length === 1 && !name.startsWith('[') ? maxSingleLabelCharacters : maxLabelCharacters;
  return labels.some((label) => label.length > most) ? malformed(text) : authority;
}

const schemeAndRest = /^([a-z][a-z0-9+.-]{0,19}:\/\/)(.+)$/is;

/** Scheme, host and port of an origin (RFC 6454 section 7), or `null`. */
function shownOrigin(text: string): string {
  if (text === 'null') return text;
  const [, scheme = '', rest = ''] = schemeAndRest.exec(text) ?? [];
  const host = shownHost(rest);
  return scheme === '' || host === malformed(rest) ? malformed(text) : `${scheme}${host}`;
}

const maxLibraryCharacters = 500;
/** A name, as of a claim or of an argument. */
const quotedName = /^[A-Za-z_]{1,16}$/;

/** What a library says, without what it quotes: JSON.parse quotes the text that it was given. */
export function shownLibraryText(text: string): string {
  const first = text.indexOf('"');
  const last = text.lastIndexOf('"');
  const quoted = text.slice(first + 1, last);
  const whole =
    last <= first || quotedName.test(quoted)
      ? text
      : `${text.slice(0, first)}"${malformed(quoted)}"${text.slice(last + 1)}`;
  return whole.slice(0, maxLibraryCharacters).replace(/[^\x20-\x7e]/g, '?');
}

const word = /^[A-Za-z0-9_$-]{1,64}$/;
const maxErrorsInside = 4;

/**
 * What is known of an error: its kind, code, message, frames and causes. Whatever else a library has hung on it stays out,
 * as the packet that a parser refused.
 */
function shownError(error: unknown, level = 0): unknown {
  if (!(error instanceof Error)) return typeof error === 'string' ? shownLibraryText(error) : typeof error;
  const { name, message, stack = '', cause } = error;
  const code = 'code' in error ? String(error.code) : undefined;
  const inside = (one: unknown): unknown =>
    level < maxErrorsInside ? shownError(one, level + 1) : undefined;
  // The stack begins with the message, which may have lines of its own.
  const after = stack.includes(message) ? stack.slice(stack.indexOf(message) + message.length) : stack;
  const frames = after.split('\n').filter((frame) => /^ +at /.test(frame));
  return {
    type: matching(word)(name),
    ...(code === undefined ? {} : { code: matching(word)(code) }),
    message: shownLibraryText(message),
    stack: frames.join('\n'),
    ...(cause === undefined ? {} : { cause: inside(cause) }),
    ...(error instanceof AggregateError
      ? { errors: error.errors.slice(0, maxErrorsInside).map(inside) }
      : {}),
  };
}

/** An error's kind and message in one line, or a text that has been made so. */
export function shownCause(cause: unknown): string {
  if (cause instanceof Error) return shownLibraryText(`${cause.name}: ${cause.message}`);
  return typeof cause === 'string' ? shownLibraryText(cause) : typeof cause;
}

/** Shows a text that keeps to a grammar. */
function matching(grammar: RegExp): (value: unknown) => string {
  return (value) => {
    const text = String(value);
    return grammar.test(text) ? text : malformed(text);
  };
}

function textOf(author: Author, grammar: string, show: (text: string) => unknown): LogMember {
  return { author, grammar, show: (value) => show(String(value)) };
}

const itself = (value: unknown): unknown => value;
/** A word or a sentence that stands in the code, with names and figures. */
const words: LogMember = { author: 'us', grammar: 'our own words', show: itself };
const figure: LogMember = { author: 'us', grammar: 'a figure', show: itself };
/** A name that the start has checked. */
const name: LogMember = {
  author: 'operator',
  grammar: 'a name of the settings or the callers file',
  show: itself,
};
const address: LogMember = { author: 'operator', grammar: 'an address of the settings', show: itself };
const fault: LogMember = {
  author: 'library',
  grammar: 'kind, code, message without what it quotes, frames, causes',
  show: (error) => shownError(error),
};

/** Every member that a line of the log may have, but for `level`, `time` and `msg`, which pino writes. */
export const logMembers = {
  // What a caller sent.
  requestId: textOf('caller', '1 to 128 of A-Z a-z 0-9 . _ ~ : + / = -', matching(requestIdGrammar)),
  traceId: textOf('caller', '32 hexadecimal digits', matching(/^[0-9a-f]{32}$/)),
  trace_id: textOf('caller', '32 hexadecimal digits', matching(/^[0-9a-f]{32}$/)),
  span_id: textOf('caller', '16 hexadecimal digits', matching(/^[0-9a-f]{16}$/)),
  trace_flags: textOf('caller', '2 hexadecimal digits', matching(/^[0-9a-f]{2}$/)),
  method: textOf('caller', 'a method that Node knows', (text) =>
    METHODS.includes(text) ? text : malformed(text),
  ),
  peer: textOf('caller', 'an IP address', (text) => (isIP(text) === 0 ? malformed(text) : text)),
  path: textOf(
    'caller',
    'segments of A-Z a-z 0-9 . _ ~ -, cut after 200 characters; of CONNECT host:port',
    shownPath,
  ),
  host: textOf('caller', 'a host name or IP address, and a port', shownHost),
  origin: textOf('caller', 'scheme://host:port, or null', shownOrigin),
  subject: textOf(
    'issuer',
    'up to 200 characters, none of them a control',
    matching(/^[^\p{C}\u2028\u2029]{1,200}$/u),
  ),
  // What Node, a library or a server said.
  code: textOf('library', 'up to 64 of A-Z a-z 0-9 _ -', matching(word)),
  cause: { author: 'library', grammar: 'kind and message without what it quotes', show: shownCause },
  parts: {
    author: 'library',
    grammar: 'what was printed, without what it quotes',
    show: (parts) => (Array.isArray(parts) ? parts.map((part) => shownLibraryText(String(part))) : []),
  },
  err: fault,
  error: fault,
  // What the operator wrote.
  problems: { author: 'operator', grammar: 'places in the callers file, and our own words', show: itself },
  source: { author: 'operator', grammar: 'the kind and place of a key store', show: itself },
  names: { author: 'operator', grammar: 'names of the callers file', show: itself },
  ...{ caller: name, token: name, workspace: name, workspaces: name, operation: name },
  ...{ url: address, adminUrl: address, proxy: address, address },
  // What the gateway says.
  ...{
    by: words,
    field: words,
    note: words,
    would: words,
    problem: words,
    reason: words,
    cache: words,
    gate: words,
    kind: words,
  },
  ...{
    from: words,
    to: words,
    lastFailure: words,
    first: words,
    version: words,
    fingerprint: words,
    validTo: words,
  },
  ...{ status: figure, attempts: figure, upstreamStatus: figure, generation: figure, stored: figure },
  ...{ waitedMs: figure, upstreamMs: figure, totalMs: figure, closedForMs: figure, statedWaitMs: figure },
  ...{ perSecond: figure, waiting: figure, started: figure, finished: figure, aborted: figure },
  ...{
    callers: figure,
    lines: figure,
    maxConnections: figure,
    upstreamConnections: figure,
    entries: figure,
    bytes: figure,
  },
  ...{ idleConnections: figure, maxConnectionBytes: figure },
} as const satisfies Readonly<Record<string, LogMember>>;

/** The fields of a line as the table shows them. A member that the table does not have is shown by its size. */
export function shownFields(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([member, value]) => [member, shownMember(member, value)]),
  );
}

function shownMember(member: string, value: unknown): unknown {
  if (Object.hasOwn(logMembers, member)) return logMembers[member as keyof typeof logMembers].show(value);
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return value;
  return typeof value === 'string' ? `unlisted, ${value.length} characters` : 'unlisted';
}
