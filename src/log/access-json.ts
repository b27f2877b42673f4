/**
 * An access line as JSON. Most of a caller's lines differ in id, time and duration alone, so the text of the rest
 * is remembered from the caller's line before: to write every member of every line anew would cost more than all
 * layers together.
 */
import type { AccessLine } from '../edge/access-log.ts';

interface Remembered {
  readonly line: AccessLine;
  /** Its members that come back, without braces. */
  readonly text: string;
}

/** Callers come from a file, so these are all of them; if not, remembering starts over. */
const maxCallers = 20_000;

/** Returns what writes a line's members, without braces. */
export function accessJson(): (line: AccessLine) => string {
  const lastOf = new Map<string | undefined, Remembered>();

  function recurring(line: AccessLine): string {
    const last = lastOf.get(line.caller);
    if (last !== undefined && isAlike(last.line, line)) return last.text;
    const { requestId, waitedMs, upstreamMs, totalMs, ...rest } = line;
    const text = JSON.stringify(rest).slice(1, -1);
    if (lastOf.size >= maxCallers) lastOf.clear();
    lastOf.set(line.caller, { line, text });
    return text;
  }

  return (line) => {
    const { requestId, waitedMs, upstreamMs, totalMs } = line;
    const times = `"waitedMs":${waitedMs},"upstreamMs":${upstreamMs},"totalMs":${totalMs}`;
    return `"requestId":${JSON.stringify(requestId)},${recurring(line)},${times}`;
  };
}

/** Whether all members but id, times and durations are the same. */
function isAlike(one: AccessLine, other: AccessLine): boolean {
  return (
    one.status === other.status &&
    one.cache === other.cache &&
    one.operation === other.operation &&
    one.by === other.by &&
    one.note === other.note &&
    one.method === other.method &&
    one.attempts === other.attempts &&
    one.upstreamStatus === other.upstreamStatus &&
    one.generation === other.generation &&
    one.gate === other.gate &&
    one.problem === other.problem &&
    one.reason === other.reason &&
    one.cause === other.cause
  );
}
