/**
 * How long the upstream asks to wait, from the fields of its answer, in every spelling that is in use. Pure: no `this`,
 * no I/O, no clock. What cannot be read is as good as absent, and is named to be counted; nothing here throws.
 */
import { dateOfAnswer, parseHttpDate, parseIsoDate } from './date.ts';
import { type HeaderFields, ownField } from './fields.ts';

/** What is read of an answer. */
interface Received {
  readonly status: number;
  readonly headers: HeaderFields;
  /** Wall clock at receipt, ms: used where the answer has no `Date` of its own. */
  readonly receivedAt: number;
}

export interface StatedWait {
  /** From the receipt of the answer; `undefined` where it asks for none. */
  readonly waitMs: number | undefined;
  /** The fields that should have said how long, and say nothing that can be read. */
  readonly unreadable: readonly string[];
}

const none: StatedWait = { waitMs: undefined, unreadable: [] };

/** The fields that state a wait. Plain numbers are ms where the name ends in `-ms`, else seconds. */
const waitFields: ReadonlySet<string> = new Set([
  'retry-after',
  'retry-after-ms',
  'x-ms-retry-after-ms',
  'ratelimit-reset',
  'x-ratelimit-reset',
  'x-ratelimit-reset-after',
  'x-rate-limit-reset',
  'ratelimit',
]);

/** More is nonsense: a limit that is counted by the month is the longest that there is. */
const maxWaitMs = 31 * 86_400_000;
/** So many limits are followed at most: of each the last answers are remembered. */
const mostLimits = 16;
/** From here on a number is a time since 1970 in seconds, and from there on in ms. */
const [firstEpochSeconds, firstEpochMs] = [1e9, 1e11];

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The spellings: each gives the ms from `answeredAt`, below 0 for the past, and `undefined` for a text of another one. */
const spellings: readonly ((text: string, answeredAt: number, isMs: boolean) => number | undefined)[] = [
  function aNumber(text, answeredAt, isMs) {
    if (!/^-?\d+(?:\.\d*)?$/.test(text)) return undefined;
    const number = Number(text);
    if (number < firstEpochSeconds) return isMs ? number : number * 1_000;
    return (number < firstEpochMs ? number * 1_000 : number) - answeredAt;
  },
  function aDuration(text) {
    if (!/^(?:\d+(?:\.\d+)?(?:ms|[smhd]))+$/.test(text)) return undefined;
    const parts = [...text.matchAll(/([\d.]+)([a-z]+)/g)];
    return parts.reduce((ms, [, amount, unit = '']) => ms + Number(amount) * (unitMs[unit] ?? 0), 0);
  },
  (text, answeredAt) => since(parseHttpDate(text, answeredAt), answeredAt),
  (text, answeredAt) => since(parseIsoDate(text), answeredAt),
];

/**
 * The wait that a 429 or a 5xx asks for: the longest, where its fields differ.
 *
 * `Retry-After` (RFC 9110 section 10.2.3) and its kin count always. A reset counts where nothing is left of its own limit:
 * "A client SHOULD NOT exceed the quota units conveyed by the remaining parameter before the time window expressed in
 * the reset parameter" (draft-ietf-httpapi-ratelimit-headers-10, "Client Behavior"). Where the upstream does not say
 * what is left, as it may (same draft, "Missing Remaining information"), a 429 says that it is nothing. By that draft
 * `Retry-After` has precedence, and is not earlier than the reset. Where it is, the longer of the two obeys both.
 *
 * Dates and times are measured against the answer's own `Date`, so that clocks need not agree. What lies in the past is no
 * wait, and what is more than 31 days away is not believed.
 *
 * @param added further fields, in lower case. One with `reset` in its name is a reset
 */
export function statedWait(
  { status, headers, receivedAt }: Received,
  added: readonly string[] = [],
): StatedWait {
  if (status !== 429 && status < 500) return none;
  const answeredAt = dateOfAnswer(headers['date'], receivedAt);
  const unreadable = new Set<string>();
  let waitMs: number | undefined;
  for (const { name, text } of statementsIn(headers, status === 429, added)) {
    const ms = readWait(text, answeredAt, name.endsWith('-ms'));
    if (ms === undefined || ms > maxWaitMs) unreadable.add(name);
    else if (ms >= 0) waitMs = Math.max(waitMs ?? 0, Math.round(ms));
  }
  return { waitMs, unreadable: [...unreadable] };
}

/** What an answer says that is left of one limit, and for how long. */
export interface StatedLimit {
  /** Its field, and its place where one field tells of several. */
  readonly name: string;
  readonly remaining: number;
  /** From the receipt of the answer. */
  readonly resetMs: number;
}

/**
 * What an answer that is no refusal says that is left, where it says until when. Nothing where a cache on the way has
 * answered: "The presence of an Age header field implies that the response was not generated or validated by the origin
 * server for this request" (RFC 9111 section 5.1). So does `hit` in `Cache-Status` (RFC 9211 section 2.1).
 *
 * @param added as for `statedWait`
 */
export function statedLimits(
  { status, headers, receivedAt }: Received,
  added: readonly string[] = [],
): readonly StatedLimit[] {
  const names = status >= 400 ? [] : waitFieldsOf(headers, added);
  if (names.length === 0 || linesOf(headers, 'age').length > 0) return [];
  if (linesOf(headers, 'cache-status').some((line) => /;\s*hit\b/i.test(line))) return [];
  const answeredAt = dateOfAnswer(headers['date'], receivedAt);
  return names.flatMap((name) => {
    const lines = linesOf(headers, name);
    if (remainingField(name) === name) {
      const limits = name === 'ratelimit' ? lines.flatMap(limitsIn).slice(0, mostLimits) : [];
      return limits.flatMap(({ remaining, reset }, at) =>
        limitOf(
          `${name}${limits.length > 1 ? ` ${at + 1}` : ''}`,
          [remaining ?? ''],
          [reset ?? ''],
          answeredAt,
        ),
      );
    }
    return limitOf(name, linesOf(headers, remainingField(name)), lines, answeredAt);
  });
}

function limitOf(
  name: string,
  left: readonly string[],
  resets: readonly string[],
  answeredAt: number,
): readonly StatedLimit[] {
  const remaining = leastOf(left);
  const resetMs = Math.max(...resets.map((text) => readWait(text, answeredAt, name.endsWith('-ms')) ?? -1));
  const isUseful = remaining !== undefined && resetMs >= 0 && resetMs <= maxWaitMs;
  return isUseful ? [{ name, remaining, resetMs }] : [];
}

interface Statement {
  readonly name: string;
  readonly text: string;
}

/** The texts that say how long to wait. @param isRefusal a limit that does not say what is left is used up */
function statementsIn(headers: HeaderFields, isRefusal: boolean, added: readonly string[]): Statement[] {
  const isUsedUp = (remaining: readonly string[]): boolean => {
    const left = leastOf(remaining);
    return left === undefined ? isRefusal : left < 1;
  };
  return waitFieldsOf(headers, added).flatMap((name) => {
    const lines = linesOf(headers, name);
    const remaining = remainingField(name);
    const isReset = remaining !== name;
    if (isReset && !isUsedUp(linesOf(headers, remaining))) return [];
    const texts = name === 'ratelimit' ? lines.flatMap((line) => resetsIn(line, isUsedUp)) : lines;
    return texts.map((text) => ({ name, text }));
  });
}

/** The resets of a `RateLimit` field that count. A field that names no limit gives a text of no spelling. */
function resetsIn(line: string, isUsedUp: (remaining: readonly string[]) => boolean): readonly string[] {
  const limits = limitsIn(line);
  if (limits.length === 0) return [''];
  return limits.flatMap(({ remaining, reset }) =>
    reset !== undefined && isUsedUp(remaining === undefined ? [] : [remaining]) ? [reset] : [],
  );
}

/** Those that the answer has: hardly any has one. */
function waitFieldsOf(headers: HeaderFields, added: readonly string[]): readonly string[] {
  return Object.keys(headers).filter((name) => waitFields.has(name) || added.includes(name));
}

/** The field that says what is left where this one says until when: `x-ratelimit-remaining` beside `x-ratelimit-reset`. */
function remainingField(name: string): string {
  return name.replace(/reset(?:-?(?:after|at|time))?(?![a-z])/, 'remaining');
}

/** A field that came more than once may contradict itself: each line is read. */
function linesOf(headers: HeaderFields, name: string): readonly string[] {
  const value = ownField(headers, name);
  return value === undefined ? [] : typeof value === 'string' ? [value] : value;
}

/** What is left: the least where that is said more than once. Some add what they count (`76;w=21600`), some have decimals. */
function leastOf(texts: readonly string[]): number | undefined {
  const amounts = texts.map((text) => /^\s*(\d+(?:\.\d+)?)\s*(?:[;,]|$)/.exec(text)?.[1]);
  const known = amounts.filter((amount) => amount !== undefined);
  return known.length === 0 ? undefined : Math.min(...known.map(Number));
}

function readWait(line: string, answeredAt: number, isMs: boolean): number | undefined {
  const text = line.trim();
  for (const spelling of spellings) {
    const ms = spelling(text, answeredAt, isMs);
    if (ms !== undefined) return ms;
  }
  return undefined;
}

function since(at: number | undefined, answeredAt: number): number | undefined {
  return at === undefined ? undefined : at - answeredAt;
}

/** What `RateLimit` says of one limit. */
interface Limit {
  limit?: string;
  remaining?: string | undefined;
  reset?: string | undefined;
}

/** The limits of a `RateLimit` field: `"burst";r=0;t=30, …` since draft 8, `limit=100, remaining=0, reset=30` in draft 7. */
function limitsIn(field: string): readonly Limit[] {
  const limits: Limit[] = [];
  let spread: Limit | undefined;
  for (const member of withoutQuoted(field).split(',')) {
    const [first = '', ...parameters] = member.split(';');
    const [name, value] = pairOf(first);
    if (name === 'limit' || name === 'remaining' || name === 'reset') {
      // What is said a second time is said of another limit.
      if (spread === undefined || name in spread) {
        spread = {};
        limits.push(spread);
      }
      spread[name] = value;
    } else {
      const { r: remaining, t: reset } = Object.fromEntries(parameters.map(pairOf)) as Record<string, string>;
      if (remaining !== undefined || reset !== undefined) limits.push({ remaining, reset });
    }
  }
  return limits;
}

function pairOf(text: string): readonly [string, string] {
  const [name = '', value = ''] = text.split('=', 2);
  return [name.trim().toLowerCase(), value.trim()];
}

/** A policy's name may hold any character. By parts: a pattern for strings begins again at each quote that never closes. */
function withoutQuoted(text: string): string {
  const parts = text.replaceAll(/\\["\\]/g, '').split('"');
  return parts.filter((_, at) => at % 2 === 0).join('');
}
