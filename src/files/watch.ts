/**
 * Tells when a file may have changed, whatever way it was replaced.
 *
 * `fs.watch` of a file goes deaf after the first atomic rename or Kubernetes `..data` swap, and works on no network
 * file system, so the file is looked at four times a second (`fs.watchFile`). This does not keep the process alive.
 */
import { unwatchFile, watchFile } from 'node:fs';

export interface FileWatch {
  close(): void;
}

const lookEveryMs = 250;
/** A file written within this time may be written again with the same time stamp: some file systems count in 2 s. */
const settledMs = 2_000;

/**
 * Calls back when the file at this path has changed, has gone or has come back; again when its time stamp can be
 * trusted, and once soon after the start, for a change that was made before the first look. A call is a reason to
 * read the file and compare, and no promise that it differs.
 */
export function watchForChanges(file: string, onChange: () => void): FileWatch {
  let timer: NodeJS.Timeout | undefined;

  function lookIn(ms: number): void {
    clearTimeout(timer);
    timer = setTimeout(onChange, ms);
    timer.unref();
  }

  function onStat(): void {
    lookIn(settledMs);
    onChange();
  }

  watchFile(file, { persistent: false, interval: lookEveryMs }, onStat);
  lookIn(lookEveryMs);
  return {
    close() {
      clearTimeout(timer);
      // This listener alone: the same file may be watched for another reason.
      unwatchFile(file, onStat);
    },
  };
}
