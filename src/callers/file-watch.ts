/**
 * Tells when a file's content has changed, whatever way it was replaced.
 *
 * Watching the file itself goes deaf after the first atomic rename or Kubernetes `..data` swap, and no watch
 * works on every file system. So the folder is watched for speed, and the file is looked at twice a second for
 * certainty. Neither keeps the process alive.
 */
import { hash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

export interface FileWatchOptions {
  readonly file: string;
  /** The text that is known already. */
  readonly text: string;
  /** A new text. Whether it can be used: one that can't may be half written, and is handed over twice. */
  onText(text: string, isSecondLook: boolean): boolean;
  /** The file can't be read; `undefined` when it can be again. */
  onTrouble(error: unknown): void;
}

export interface FileWatch {
  /** Hands the text over again at once, changed or not. */
  readNow(): void;
  close(): void;
}

const lookEveryMs = 500;
/** A file written within this time may be written again without its time stamp telling. */
const settledMs = 2_000;
/** How long a text that can't be used must stand before it is believed to be whole. */
const suspectMs = 200;

export function watchFile(options: FileWatchOptions): FileWatch {
  const { file } = options;
  let known = hash('sha256', options.text, 'hex');
  let suspect: string | undefined;
  let suspectSinceMs = 0;
  let lastSeen = '';
  let isTroubled = false;
  let isLooking = false;
  let lookAgain = false;
  let isClosed = false;

  async function look(): Promise<void> {
    const { mtimeMs, ctimeMs, size, ino, dev } = await stat(file);
    const seen = `${dev} ${ino} ${size} ${mtimeMs} ${ctimeMs}`;
    // Date.now() against the file's own time: a clock that jumps costs a needless read and nothing else.
    const isSettled = Math.abs(Date.now() - Math.max(mtimeMs, ctimeMs)) > settledMs;
    if (seen === lastSeen && isSettled && suspect === undefined && !isTroubled) return;
    const text = await readFile(file, 'utf8');
    if (isClosed) return;
    if (isTroubled) {
      isTroubled = false;
      options.onTrouble(undefined);
    }
    lastSeen = seen;
    const digest = hash('sha256', text, 'hex');
    if (digest === known) {
      suspect = undefined;
      return;
    }
    const isSecondLook = suspect === digest;
    if (isSecondLook && performance.now() - suspectSinceMs < suspectMs) return;
    if (options.onText(text, isSecondLook) || isSecondLook) {
      known = digest;
      suspect = undefined;
    } else {
      suspect = digest;
      suspectSinceMs = performance.now();
    }
  }

  function onLookFailed(error: unknown): void {
    if (isClosed || isTroubled) return;
    isTroubled = true;
    options.onTrouble(error);
  }

  function lookNow(): void {
    if (isLooking) {
      lookAgain = true;
      return;
    }
    isLooking = true;
    look()
      .catch(onLookFailed)
      .finally(() => {
        isLooking = false;
        if (!lookAgain || isClosed) return;
        lookAgain = false;
        lookNow();
      })
      .catch(onLookFailed);
  }

  let watcher: FSWatcher | undefined;
  try {
    watcher = watch(dirname(file), { persistent: false }, lookNow);
    watcher.on('error', () => watcher?.close());
  } catch {
    // No watch to be had (the system's limit, the file system): the look every half second remains.
  }
  const timer = setInterval(lookNow, lookEveryMs);
  timer.unref();

  return {
    readNow() {
      known = '';
      lastSeen = '';
      lookNow();
    },
    close() {
      isClosed = true;
      clearInterval(timer);
      watcher?.close();
    },
  };
}
