/**
 * Collects log lines and hands them on in pieces. A file stream that keeps account of every line costs more than
 * making the line does.
 */

export interface LogLines {
  write(line: string): void;
  /** Hands on what is held. */
  flush(): void;
}

/** A line is written this long after it was made, at the latest. */
const holdMs = 100;
const pieceCharacters = 32 * 1_024;

/** @param writePiece takes whole lines */
export function collectLines(writePiece: (piece: string) => void): LogLines {
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
