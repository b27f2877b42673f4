/** Dates of the callers file. Pure: no `this`, no I/O, no clock. */

const shape = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.\d+)?([Zz]|[+-](\d\d):(\d\d))$/;

/**
 * A date and time with its offset (RFC 3339 section 5.6) in ms of the wall clock; `undefined` for anything else,
 * also for a day that the month does not have: `Date.parse` would move it to the next month.
 */
export function parseRfc3339(text: string): number | undefined {
  const found = shape.exec(text);
  if (found === null) return undefined;
  const [year, month, day, hour, minute, second, offsetHour, offsetMinute] = [1, 2, 3, 4, 5, 6, 8, 9].map(
    (part) => Number(found[part] ?? 0),
  ) as [number, number, number, number, number, number, number, number];
  if (month < 1 || month > 12 || day < 1 || day > new Date(Date.UTC(year, month, 0)).getUTCDate())
    return undefined;
  // A leap second (60) counts as the second after it.
  if (hour > 23 || minute > 59 || second > 60 || offsetHour > 23 || offsetMinute > 59) return undefined;
  const sign = found[7]?.startsWith('-') === true ? -1 : 1;
  return (
    Date.UTC(year, month - 1, day, hour, minute, second) - sign * (offsetHour * 60 + offsetMinute) * 60_000
  );
}
