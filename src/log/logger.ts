/**
 * The log: pino, one JSON object per line, buffered; on a terminal lines for people, made of these. What is written has
 * been searched for the upstream key by value; access lines hold only fields that cannot contain it and are spared the
 * search.
 */
import { isatty } from 'node:tty';
import pino, { type Logger } from 'pino';
import type { AccessLine } from '../edge/access-log.ts';
import { shownFields } from '../edge/log-members.ts';
import { toHundredths, toTime } from '../exchange/figures.ts';
import { asText } from './text-lines.ts';

export interface LoggerOptions {
  readonly level: string;
  /** Replaces every form of the upstream key in a text. */
  readonly redact: (text: string) => string;
  /** Standard output where left out. */
  readonly destination?: LogDestination | undefined;
  /** Where left out, text on a terminal, JSON elsewhere. */
  readonly format?: 'json' | 'text' | undefined;
}

export interface GatewayLogger {
  /** For everything but requests. */
  readonly events: Logger;
  /** One line per request. */
  access(line: AccessLine): void;
  /** Lines that could not be written, since the start. */
  losses(): LogLosses;
  /** Writes out what is buffered, now. */
  flush(): void;
  /** The same before the process ends: waits for a slow reader, for a moment. */
  close(): Promise<void>;
}

const standardOutput = 1;

export function createLogger({ level, redact, destination: given, format }: LoggerOptions): GatewayLogger {
  const destination =
    given ??
    writeTo(standardOutput, (lost) =>
      events.warn({ lines: lost }, 'log lines were lost while the log could not be written'),
    );
  const isText = format === undefined ? given === undefined && isatty(standardOutput) : format === 'text';
  const lines = collectLines((json) => destination.write(isText ? asText(json) : json));
  const events = pino(
    {
      level,
      base: null,
      formatters: {
        level: (label) => ({ level: label }),
        log: (fields) => rounded(shownFields(fields)) as typeof fields,
      },
      // The table of members has made plain values of errors.
      serializers: { err: (shown: unknown) => shown },
      hooks: {
        // An object may throw when it is looked at, an error too: that must not become a fault of whatever logs it.
        logMethod(parts, write, levelNumber) {
          try {
            write.apply(this, parts);
          } catch {
            const label = pino.levels.labels[levelNumber];
            lines.write(
              `{"level":"${label}","time":${Date.now()},"msg":"a line of the log cannot be made"}\n`,
            );
          }
        },
      },
    },
    { write: (line: string) => lines.write(redact(line)) },
  );
  const members = accessJson();
  const isInfo = events.isLevelEnabled('info');
  return {
    events,
    access(line) {
      if (line.status >= 500) events.warn(flat(line), 'request');
      else if (line.reason !== undefined) events.info(flat(line), 'request');
      // What pino does for the members of any object (serializers, redaction, cycles) is nothing to a line that is
      // flat and made by us, of fields that cannot hold the key.
      else if (isInfo)
        lines.write(`{"level":"info","time":${Date.now()},${members(line)},"msg":"request"}\n`);
    },
    losses: () => destination.losses?.() ?? { lostLines: 0, lastLostAt: null },
    flush() {
      lines.flush();
      destination.flush();
    },
    close() {
      lines.flush();
      return destination.close();
    },
  };
}

/** A line with the fields of its refusal among its own members. */
function flat({ refusal, ...line }: AccessLine): object {
  return { ...line, ...refusal };
}

/** Fields with every figure rounded to a hundredth; what is no plain object or list stays as it is. */
function rounded(fields: unknown): unknown {
  if (typeof fields === 'number') return Number.isInteger(fields) ? fields : toHundredths(fields);
  if (Array.isArray(fields)) return fields.map(rounded);
  if (typeof fields !== 'object' || fields === null || Object.getPrototypeOf(fields) !== Object.prototype)
    return fields;
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, rounded(value)]));
}

interface Remembered {
  readonly line: AccessLine;
  /** Its members that come back, between two commas. */
  readonly text: string;
}

/** Few kinds of line come often: an operation or two, found in memory or not. */
const maxRemembered = 16;

/**
 * Returns what writes a line's members, without braces. Most lines differ from one written lately in caller, subject, ids,
 * time and duration alone, so the text of the rest is remembered: to write every member of every line anew would cost more
 * than all layers together. Remembered for all callers together, or ten thousand of them would each need their own. To
 * join a piece costs, so the pieces hold the commas between them.
 */
export function accessJson(): (line: AccessLine) => string {
  const remembered: Remembered[] = [];
  let oldest = 0;

  function recurring(line: AccessLine): string {
    for (const one of remembered) if (isAlike(one.line, line)) return one.text;
    const { requestId, traceId, trace_id, span_id, trace_flags, ...others } = line;
    const { caller, subject, waitedMs, upstreamMs, totalMs, ...rest } = others;
    const text = `,${JSON.stringify(rest).slice(1, -1)},`;
    remembered[oldest] = { line, text };
    oldest = (oldest + 1) % maxRemembered;
    return text;
  }

  return (line) => {
    const { requestId, traceId, trace_id, span_id, trace_flags } = line;
    const { caller, subject, waitedMs, upstreamMs, totalMs } = line;
    let own = `"requestId":${JSON.stringify(requestId)}`;
    if (traceId !== undefined) own += `,"traceId":"${traceId}"`;
    if (trace_id !== undefined) own += `,"trace_id":"${trace_id}"`;
    if (span_id !== undefined) own += `,"span_id":"${span_id}"`;
    if (trace_flags !== undefined) own += `,"trace_flags":"${trace_flags}"`;
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
    one.would === other.would &&
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

interface LogLines {
  write(line: string): void;
  /** Hands on what is held. */
  flush(): void;
}

/** A line is written this long after it was made, at the latest. */
const holdMs = 100;
const pieceCharacters = 32 * 1_024;

/**
 * Collects lines and hands them on in pieces: a file stream that keeps account of every line costs more than making the
 * line does.
 *
 * @param writePiece takes whole lines
 */
function collectLines(writePiece: (piece: string) => void): LogLines {
  let held = '';
  // Not `unref`ed: a process whose work is done ends once its last lines are written.
  let timer: NodeJS.Timeout | undefined;

  function flush(): void {
    clearTimeout(timer);
    timer = undefined;
    if (held === '') return;
    const piece = held;
    held = '';
    writePiece(piece);
  }

  return {
    write(line) {
      held += line;
      if (held.length >= pieceCharacters) flush();
      else timer ??= setTimeout(flush, holdMs);
    },
    flush,
  };
}

// Where the log goes: a file descriptor, written to without waiting. It must never take the gateway down: a dead
// reader (EPIPE) or a full disk (ENOSPC) costs lines; their number is logged once it works again.

export interface LogDestination {
  /** Takes whole lines. */
  write(lines: string): void;
  /** What was lost since the start; left out by a destination that loses nothing. */
  losses?(): LogLosses;
  /** Writes out what is buffered, now, as far as it goes. */
  flush(): void;
  /** The same before the process ends: waits for a slow reader, for a moment. */
  close(): Promise<void>;
}

/** The log's part of `/status`: lines that could not be written, since the start. */
export interface LogLosses {
  readonly lostLines: number;
  /** Null where no line was lost. */
  readonly lastLostAt: string | null;
}

/** At the end a reader that is behind gets this long to take what is buffered; one that has stopped reading, no more. */
const lastMs = 2_000;

/** Unwritten lines are held up to this much; then lines are dropped, for memory is for answers. */
const maxBufferedBytes = 4 * 2 ** 20;

/** @param onLost called with the number of dropped lines, once the log can be written again */
function writeTo(fd: number, onLost: (lines: number) => void): LogDestination {
  return new DescriptorLog(fd, onLost);
}

class DescriptorLog implements LogDestination {
  readonly #stream: ReturnType<typeof pino.destination>;
  #giveUpMs = Number.POSITIVE_INFINITY;
  /** Lost and not reported yet. */
  #lost = 0;
  #losses: LogLosses = { lostLines: 0, lastLostAt: null };
  #isFailing = false;

  constructor(fd: number, onLost: (lines: number) => void) {
    const stream = pino.destination({
      dest: fd,
      sync: false,
      // Every line is written at once all the same; but with 0, `flush` below waits for nothing, and what comes after
      // it overtakes the piece that is being written.
      minLength: 1,
      maxLength: maxBufferedBytes,
      // A reader that has stopped reading must not keep the process from ending.
      retryEAGAIN: () => performance.now() < this.#giveUpMs,
    });
    this.#stream = stream;
    stream.on('error', () => {
      this.#isFailing = true;
    });
    stream.on('write', () => {
      this.#isFailing = false;
    });
    stream.on('drop', (lines: string) => this.#lose(lines));
    stream.on('drain', () => {
      if (this.#lost === 0) return;
      const lines = this.#lost;
      this.#lost = 0;
      onLost(lines);
    });
    const writeOut = stream.flushSync.bind(stream);
    // On a full disk its own would try for ever, when the process exits as well.
    stream.flushSync = () => {
      if (!this.#isFailing) writeOut();
    };
  }

  write(lines: string): void {
    try {
      this.#stream.write(lines);
    } catch {
      this.#lose(lines);
    }
  }

  losses(): LogLosses {
    return this.#losses;
  }

  flush(): void {
    try {
      this.#stream.flushSync();
    } catch {
      // The reader has gone.
    }
  }

  async close(): Promise<void> {
    this.#giveUpMs = performance.now() + lastMs;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        this.#isFailing = true;
        resolve();
      }, lastMs);
      this.#stream.flush(() => {
        clearTimeout(timer);
        resolve();
      });
    });
    this.flush();
  }

  #lose(lines: string): void {
    const count = lines.split('\n').length - 1;
    this.#lost += count;
    this.#losses = { lostLines: this.#losses.lostLines + count, lastLostAt: toTime(Date.now()) };
  }
}
