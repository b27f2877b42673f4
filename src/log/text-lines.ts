/**
 * The log as a person reads it on a terminal: made of finished JSON lines, so that nothing is in it that is not in the log,
 * and only after the search for the key. Pure: no `this`, no I/O, no clock.
 */
import { toHundredths } from '../exchange/figures.ts';

type Members = Readonly<Record<string, unknown>>;

/** What a request's line says in its place; of others that went well the rest would hide what matters. */
const inPlace = new Set(
  'level time msg method operation path status cache totalMs caller by attempts generation upstreamMs waitedMs gate traceId span_id trace_flags'.split(
    ' ',
  ),
);
/** To find a request again, which only one that failed is worth. */
const ids = new Set(['requestId', 'trace_id']);

/** Whole lines of JSON as lines of text; a line that is no JSON stays, without what would steer a terminal. */
export function asText(lines: string): string {
  return lines.replaceAll(/[^\n]+/g, (line) => {
    const members = parse(line);
    return members === undefined ? visible(line) : lineOf(members);
  });
}

/** A line for a terminal: characters that would move the cursor or hide others are shown as numbers. */
export function visible(line: string): string {
  return line.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}

function parse(line: string): Members | undefined {
  try {
    const members: unknown = JSON.parse(line);
    return typeof members === 'object' && members !== null ? (members as Members) : undefined;
  } catch {
    return undefined;
  }
}

function lineOf(members: Members): string {
  const { time, level, msg, err } = members;
  const isRequest = msg === 'request' && typeof members['status'] === 'number';
  const at = typeof time === 'number' ? [clockOf(new Date(time))] : [];
  const weight = level === 'info' || level === undefined ? [] : [String(level).toUpperCase()];
  const said = isRequest ? wordsOf(members) : [String(msg ?? '')];
  const rest = Object.entries(members).flatMap(([name, value]) => {
    const isShown = isRequest
      ? !inPlace.has(name) && (!ids.has(name) || 'problem' in members) && !isRepeated(name, members)
      : !['time', 'level', 'msg'].includes(name);
    return isShown ? [`${name}=${wordOf(value)}`] : [];
  });
  const line = visible([...at, ...weight, ...said, ...rest].join(' '));
  return [line, ...stackOf(err).map((frame) => `    ${visible(frame)}`)].join('\n');
}

function isRepeated(name: string, members: Members): boolean {
  return name === 'upstreamStatus' && members[name] === members['status'];
}

/** `GET list-accounts 200 hit 6 ms reports` */
function wordsOf({ method, operation, path, status, cache, totalMs, waitedMs, caller }: Members): string[] {
  const ms = typeof totalMs === 'number' ? totalMs : 0;
  const waited = typeof waitedMs === 'number' && waitedMs >= 1 ? [`(${roundedMs(waitedMs)} waited)`] : [];
  const words = [method, operation ?? path, status, cache, roundedMs(ms), ...waited, caller];
  return words.filter((word) => word !== undefined).map(String);
}

function roundedMs(ms: number): string {
  return `${ms < 1 ? toHundredths(ms) : Math.round(ms)} ms`;
}

function clockOf(date: Date): string {
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map((part) => String(part).padStart(2, '0'))
    .join(':');
}

/** One word as it is; anything else as JSON, so that it shows where it ends. */
function wordOf(value: unknown): string {
  if (isError(value)) return JSON.stringify(`${value.type}: ${value.message}`);
  return typeof value === 'string' && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
}

/** As the log writes an error. */
function isError(value: unknown): value is { type: string; message: string; stack: string } {
  return (
    typeof value === 'object' && value !== null && 'type' in value && 'message' in value && 'stack' in value
  );
}

/** Where an error came from, without its message, which its line has. */
function stackOf(error: unknown): string[] {
  return isError(error)
    ? error.stack
        .split('\n')
        .filter((line) => /^\s+at /.test(line))
        .map((line) => line.trim())
    : [];
}
