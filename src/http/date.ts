/** Dates in texts: HTTP's own and ISO 8601. Pure: no `this`, no I/O, no clock. */

/** Node's timers hold no longer delay; a greater one would fire at once. */
export const maxTimerMs = 2 ** 31 - 1;

const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];

// Case does not matter to a cache; any zone but GMT makes a date invalid (RFC 9111 section 4.2).
const imfFixdate = /^(?:mon|tue|wed|thu|fri|sat|sun), (\d\d) ([a-z]{3}) (\d{4}) (\d\d):(\d\d):(\d\d) gmt$/i;
const rfc850Date =
  /^(?:mon|tues|wednes|thurs|fri|satur|sun)day, (\d\d)-([a-z]{3})-(\d\d) (\d\d):(\d\d):(\d\d) gmt$/i;
const asctimeDate = /^(?:mon|tue|wed|thu|fri|sat|sun) ([a-z]{3}) (\d\d| \d) (\d\d):(\d\d):(\d\d) (\d{4})$/i;

const isoDate =
  /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(\.\d+)?)?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?$/;
/** What the strict form has at its end: the seconds, and a zone with its colon. */
const rfc3339End = /:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;

/** Answers of the same second have the same `Date`: the last one read is remembered. */
let lastFixdate: { readonly text: string; readonly ms: number | undefined } = { text: '', ms: undefined };

let lastSecond = { at: Number.NaN, text: '' };

/**
 * Writes an HTTP-date in the form to send (IMF-fixdate, RFC 9110 section 5.6.7).
 *
 * @param nowMs wall clock
 */
export function httpDate(nowMs: number): string {
  const at = Math.floor(nowMs / 1_000);
  if (at !== lastSecond.at) lastSecond = { at, text: new Date(nowMs).toUTCString() };
  return lastSecond.text;
}

/**
 * Reads an HTTP-date in any of its three forms (RFC 9110 section 5.6.7).
 *
 * @param text the field value
 * @param nowMs wall clock, for the century of a two-digit year: one more than 50 years ahead is in the past
 * @returns ms since the epoch, or `undefined` where it is no HTTP-date
 */
export function parseHttpDate(text: string, nowMs: number): number | undefined {
  if (text === lastFixdate.text) return lastFixdate.ms;
  const fixdate = imfFixdate.exec(text);
  if (fixdate !== null) {
    const [, day, month, year, hour, minute, second] = fixdate;
    lastFixdate = { text, ms: httpMs(Number(year), month, day, hour, minute, second) };
    return lastFixdate.ms;
  }
  const old = rfc850Date.exec(text);
  if (old !== null) {
    const [, day, month, shortYear, hour, minute, second] = old;
    const thisYear = new Date(nowMs).getUTCFullYear();
    const year = thisYear - (thisYear % 100) + Number(shortYear);
    return httpMs(year > thisYear + 50 ? year - 100 : year, month, day, hour, minute, second);
  }
  const asctime = asctimeDate.exec(text);
  if (asctime !== null) {
    const [, month, day, hour, minute, second, year] = asctime;
    return httpMs(Number(year), month, day, hour, minute, second);
  }
  return undefined;
}

/**
 * Reads a field that holds one date. The same date on several lines is still one; dates that differ are none.
 *
 * @param nowMs wall clock, as for `parseHttpDate`
 * @returns ms since the epoch; `invalid` where it is no HTTP-date, `undefined` where the field is absent
 */
export function parseDateField(
  field: string | readonly string[] | undefined,
  nowMs: number,
): number | 'invalid' | undefined {
  if (field === undefined) return undefined;
  if (typeof field === 'string') return parseHttpDate(field.trim(), nowMs) ?? 'invalid';
  const dates = new Set(field.map((line) => parseHttpDate(line.trim(), nowMs)));
  const [date] = dates;
  return dates.size === 1 && date !== undefined ? date : 'invalid';
}

/**
 * When an answer was made, by its `Date`. Where that is absent or no date, the time of receipt takes its place
 * (RFC 9110 section 6.6.1).
 *
 * @param receivedAt wall clock at receipt, ms
 */
export function dateOfAnswer(field: string | readonly string[] | undefined, receivedAt: number): number {
  const date = parseDateField(field, receivedAt);
  return typeof date === 'number' ? date : receivedAt;
}

/**
 * Reads a date and time of ISO 8601. Without seconds they are 0; without a zone it is UTC.
 *
 * @returns ms since the epoch; `undefined` for anything else, also for a day that the month does not have: `Date.parse`
 * would move it to the next month
 */
export function parseIsoDate(text: string): number | undefined {
  const found = isoDate.exec(text);
  if (found === null) return undefined;
  const [year, month, day, hour, minute, second, fraction] = found
    .slice(1, 8)
    .map((part) => Number(part ?? 0));
  const ms = utcMs(year, Number(month) - 1, day, hour, minute, second);
  const [offsetHour, offsetMinute] = [found[9], found[10]].map((part) => Number(part ?? 0)) as [
    number,
    number,
  ];
  if (ms === undefined || offsetHour > 23 || offsetMinute > 59) return undefined;
  const offsetMs = (offsetHour * 60 + offsetMinute) * 60_000;
  return ms + Math.floor(Number(fraction) * 1_000) - (found[8] === '-' ? -offsetMs : offsetMs);
}

/** Reads a date of RFC 3339 (section 5.6): the ISO 8601 that people write into files, with seconds and zone. */
export function parseRfc3339(text: string): number | undefined {
  return rfc3339End.test(text) ? parseIsoDate(text) : undefined;
}

function httpMs(
  year: number,
  monthName = '',
  day?: string,
  hour?: string,
  minute?: string,
  second?: string,
): number | undefined {
  const month = months.indexOf(monthName.toLowerCase());
  return utcMs(year, month, Number(day), Number(hour), Number(minute), Number(second));
}

/** @param month from 0 */
function utcMs(year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0): number | undefined {
  // A second of 60 is a leap second (RFC 9110 section 5.6.7, RFC 3339 section 5.7); Date carries it over.
  if (month < 0 || month > 11 || hour > 23 || minute > 59 || second > 60) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  // The 31st of February is no date: JavaScript would carry it over to March.
  if (date.getUTCDate() !== day) return undefined;
  return date.setUTCHours(hour, minute, second);
}
