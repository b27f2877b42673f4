/**
 * An access line as JSON. Most lines differ from one written lately in caller, subject, ids, time and duration alone, so the
 * text of the rest is remembered: to write every member of every line anew would cost more than all layers together.
 * Remembered for all callers together, or ten thousand of them would each need their own.
 */
import type { AccessLine } from '../edge/access-log.ts';

interface Remembered {
  readonly line: AccessLine;
  /** Its members that come back, between two commas. */
  readonly text: string;
}

/** Few kinds of line come often: an operation or two, found in memory or not. */
const maxRemembered = 16;

/** Returns what writes a line's members, without braces. Each piece that is joined costs, so commas stand in the others. */
export function accessJson(): (line: AccessLine) => string {
  const remembered: Remembered[] = [];
  let eldest = 0;

  function recurring(line: AccessLine): string {
    for (const one of remembered) if (isAlike(one.line, line)) return one.text;
    const { requestId, traceId, caller, subject, waitedMs, upstreamMs, totalMs, ...rest } = line;
    const text = `,${JSON.stringify(rest).slice(1, -1)},`;
    remembered[eldest] = { line, text };
    eldest = (eldest + 1) % maxRemembered;
    return text;
  }

  return (line) => {
    const { requestId, traceId, caller, subject, waitedMs, upstreamMs, totalMs } = line;
    let own = `"requestId":${JSON.stringify(requestId)}`;
    if (traceId !== undefined) own += `,"traceId":"${traceId}"`;
    if (caller !== undefined) own += `,"caller":${JSON.stringify(caller)}`;
    if (subject !== undefined) own += `,"subject":${JSON.stringify(subject)}`;
    const times = `"waitedMs":${waitedMs},"upstreamMs":${upstreamMs},"totalMs":${totalMs}`;
    return own + recurring(line) + times;
  };
}

/** Whether all members but caller, subject, ids, times and durations are the same. */
function isAlike(one: AccessLine, other: AccessLine): boolean {
  return (
    one.status === other.status &&
    one.cache === other.cache &&
    one.workspace === other.workspace &&
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
    one.cause === other.cause &&
    one.refusal === other.refusal
  );
}
