/**
 * `file:/path`: the key in a file that something else writes: a Docker or Kubernetes secret, a systemd
 * credential, an agent's rendered template, an editor.
 */

import { explainDenied, openFile } from '../files/read.ts';
import { watchForChanges } from '../files/watch.ts';
import { describeFailure, type KeyStore, KeyStoreError, maxKeyBytes } from './store.ts';

/** A file written this recently may be written still; it is believed when it reads the same this much later. */
const settleMs = 50;
const mostSettlings = 20;
/** More than a good file can hold, so that one that is too large is seen to be so and never read whole. */
const readBytes = 2 * maxKeyBytes;

export function readKeyFile(path: string): KeyStore {
  const describe = `file:${path}`;
  return {
    describe,
    local: true,
    load: async () => {
      try {
        return await readSettled(path);
      } catch (error) {
        throw new KeyStoreError(
          `${describe}: the file ${describeFailure(error)}${explainDenied(path, error)}`,
        );
      }
    },
    watch: (onChange) => {
      const watch = watchForChanges(path, onChange);
      return () => watch.close();
    },
  };
}

/**
 * A program that writes the file in place and slowly shows half a key for a moment, and half a key looks like a key.
 * Renames and swaps are whole at once; they pay the short wait too, where the file is as young as that.
 */
async function readSettled(path: string): Promise<string> {
  let now = await readStart(path);
  for (let times = 0; times < mostSettlings && Math.abs(Date.now() - now.writtenAt) < settleMs; times++) {
    const { text: before } = now;
    await new Promise((resolve) => setTimeout(resolve, settleMs));
    now = await readStart(path);
    if (now.text === before) break;
  }
  return now.text;
}

async function readStart(path: string): Promise<{ text: string; writtenAt: number }> {
  const file = await openFile(path);
  try {
    const { mtimeMs: writtenAt } = await file.stat();
    const buffer = Buffer.alloc(readBytes);
    let length = 0;
    while (length < readBytes) {
      const { bytesRead } = await file.read(buffer, length, readBytes - length);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    if (length === readBytes) throw new KeyStoreError('is too large to be a key');
    return { text: buffer.toString('utf8', 0, length), writtenAt };
  } finally {
    await file.close();
  }
}
