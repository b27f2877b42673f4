/**
 * The log: pino, one JSON object per line on standard output, buffered. What is written has been searched for the
 * upstream key by value; access lines hold only facts that cannot contain it and are spared the search.
 *
 * The log must never take the gateway down: a dead reader (EPIPE) or a full disk (ENOSPC) costs lines, counted and
 * told once it works again.
 */
import pino, { type Logger } from 'pino';
import type { AccessLine } from './edge/access-log.ts';

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
  /** Writes out what is buffered, now. */
  flush(): void;
  /** The same before the process ends: waits for a slow reader, for a moment. */
  close(): Promise<void>;
}

/** At the end a reader that is behind gets this long to take what is buffered; one that has stopped reading, no more. */
const lastMs = 1_000;

/** Unwritten lines are held up to this much; then lines are dropped, for memory is for answers. */
const maxBufferedBytes = 4 * 2 ** 20;

export function createLogger({ level, redact, destination: fd = 1 }: LoggerOptions): GatewayLogger {
  let giveUpMs = Number.POSITIVE_INFINITY;
  let dropped = 0;
  const destination = pino.destination({
    dest: fd,
    sync: false,
    minLength: 4_096,
    maxLength: maxBufferedBytes,
    periodicFlush: 100,
    // A reader that has stopped reading must not keep the process from ending.
    retryEAGAIN: () => performance.now() < giveUpMs,
  });
  let failing = false;
  destination.on('error', () => {
    failing = true;
  });
  destination.on('write', () => {
    failing = false;
  });
  const writeOut = destination.flushSync.bind(destination);
  // On a full disk its own would try for ever, when the process exits as well.
  destination.flushSync = () => {
    if (!failing) writeOut();
  };
  destination.on('drop', () => {
    dropped += 1;
  });
  destination.on('drain', () => {
    if (dropped === 0) return;
    const lines = dropped;
    dropped = 0;
    events.warn({ lines }, 'log lines were lost while the log could not be written');
  });
  const settings: pino.LoggerOptions = {
    level,
    base: null,
    formatters: { level: (label) => ({ level: label }) },
  };
  const events = pino(settings, { write: (line: string) => destination.write(redact(line)) });
  const plain = pino(settings, destination);
  const flush = (): void => {
    try {
      destination.flushSync();
    } catch {
      // Nobody reads it any more.
    }
  };
  return {
    events,
    access(line) {
      if (line.status >= 500) events.warn(line, 'request');
      else if (line.reason !== undefined) events.info(line, 'request');
      else plain.info(line, 'request');
    },
    flush,
    async close() {
      giveUpMs = performance.now() + lastMs;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          failing = true;
          resolve();
        }, lastMs);
        destination.flush(() => {
          clearTimeout(timer);
          resolve();
        });
      });
      flush();
    },
  };
}
