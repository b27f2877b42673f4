/** HTTP dates: pure rules. No `this`, no I/O, no clock. */

/** Node's timers hold no longer delay; a greater one would fire at once. */
export const maxTimerMs = 2 ** 31 - 1;

const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];

// Case does not matter to a cache; any zone but GMT makes a date invalid (RFC 9111 section 4.2).
const imfFixdate = /^(?:mon|tue|wed|thu|fri|sat|sun), (\d\d) ([a-z]{3}) (\d{4}) (\d\d):(\d\d):(\d\d) gmt$/i;
const rfc850Date =
  /^(?:mon|tues|wednes|thurs|fri|satur|sun)day, (\d\d)-([a-z]{3})-(\d\d) (\d\d):(\d\d):(\d\d) gmt$/i;
const asctimeDate = /^(?:mon|tue|wed|thu|fri|sat|sun) ([a-z]{3}) (\d\d| \d) (\d\d):(\d\d):(\d\d) (\d{4})$/i;

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
    lastFixdate = { text, ms: epochMs(Number(year), month, day, hour, minute, second) };
    return lastFixdate.ms;
  }
  const old = rfc850Date.exec(text);
  if (old !== null) {
    const [, day, month, shortYear, hour, minute, second] = old;
    const thisYear = new Date(nowMs).getUTCFullYear();
    const year = thisYear - (thisYear % 100) + Number(shortYear);
    return epochMs(year > thisYear + 50 ? year - 100 : year, month, day, hour, minute, second);
  }
  const asctime = asctimeDate.exec(text);
  if (asctime !== null) {
    const [, month, day, hour, minute, second, year] = asctime;
    return epochMs(Number(year), month, day, hour, minute, second);
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

function epochMs(
  year: number,
  monthName = '',
  dayText = '',
  hourText = '',
  minuteText = '',
  secondText = '',
): number | undefined {
  const month = months.indexOf(monthName.toLowerCase());
  const [day, hour, minute, second] = [dayText, hourText, minuteText, secondText].map(Number) as [
    number,
    number,
    number,
    number,
  ];
  // A second of 60 is a leap second (RFC 9110 section 5.6.7); Date.UTC carries it over.
  if (month < 0 || hour > 23 || minute > 59 || second > 60) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  // The 31st of February is no date: JavaScript would carry it over to March.
  if (date.getUTCDate() !== day) return undefined;
  return date.setUTCHours(hour, minute, second);
}
