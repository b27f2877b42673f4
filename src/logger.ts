/**
 * The log: pino, one JSON object per line on standard output, buffered. What is written has been searched for the
 * upstream key by value; access lines hold only facts that cannot contain it and are spared the search.
 *
 * The log must never take the gateway down: a dead reader (EPIPE) or a full disk (ENOSPC) costs lines, counted and
 * told once it works again.
 */
import pino, { type Logger } from 'pino';
import { accessJson } from './access-json.ts';
import type { AccessLine } from './edge/access-log.ts';
import { collectLines } from './log-lines.ts';

export interface LoggerOptions {
  readonly level: string;
  /** Replaces every form of the upstream key in a text. */
  readonly redact: (text: string) => string;
  /** A file descriptor. */
  readonly destination?: number;
}

export interface GatewayLogger {
  /** For everything but requests. */
  readonly events: Logger;
  /** One line per request. */
  access(line: AccessLine): void;
  /** Writes out what is buffered, before the process ends. */
  flush(): void;
}

/** Unwritten lines are held up to this much; then lines are dropped, for memory is for answers. */
const maxBufferedBytes = 4 * 2 ** 20;

export function createLogger({ level, redact, destination: fd = 1 }: LoggerOptions): GatewayLogger {
  let ending = false;
  let dropped = 0;
  const destination = pino.destination({
    dest: fd,
    sync: false,
    maxLength: maxBufferedBytes,
    // A reader that has stopped reading must not keep the process from ending.
    retryEAGAIN: () => !ending,
  });
  destination.on('error', () => {});
  destination.on('drop', (piece: string) => {
    dropped += piece.split('\n').length - 1;
  });
  destination.on('drain', () => {
    if (dropped === 0) return;
    const lost = dropped;
    dropped = 0;
    events.warn({ lines: lost }, 'log lines were lost while the log could not be written');
  });
  const lines = collectLines((piece) => destination.write(piece));
  const settings: pino.LoggerOptions = {
    level,
    base: null,
    formatters: { level: (label) => ({ level: label }) },
  };
  const events = pino(settings, { write: (line: string) => lines.write(redact(line)) });
  const plain = pino(settings, lines);
  // What pino does for the members of any object (serializers, redaction, cycles) is nothing to a line that is
  // flat and made by us. It gives this symbol so that its own writing can be replaced.
  const members = accessJson();
  Object.assign(plain, {
    [pino.symbols.asJsonSym]: (line: AccessLine, message: string, _level: number, time: string) =>
      `{"level":"info"${time},${members(line)},"msg":"${message}"}\n`,
  });
  return {
    events,
    access(line) {
      if (line.status >= 500) events.warn(line, 'request');
      else if (line.reason !== undefined) events.info(line, 'request');
      else plain.info(line, 'request');
    },
    flush() {
      ending = true;
      try {
        lines.flush();
        destination.flushSync();
      } catch {
        // Nobody reads it any more.
      }
    },
  };
}
