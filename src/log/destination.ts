/**
 * Where the log goes: a file descriptor, written to without waiting. It must never take the gateway down: a dead
 * reader (EPIPE) or a full disk (ENOSPC) costs lines; their number is logged once it works again.
 */
import pino from 'pino';
import { toTime } from '../exchange/durations.ts';

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
export function writeTo(fd: number, onLost: (lines: number) => void): LogDestination {
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
