/**
 * `file:/path`: the key in a file that something else writes: a Docker or Kubernetes secret, a systemd
 * credential, an agent's rendered template, an editor.
 *
 * `fs.watch` of a file goes deaf after its first replacement by rename, and so after the first swap of a
 * Kubernetes secret (nodejs/node#5039 and its kin): the directory is watched for speed, and the file itself is
 * looked at every second for certainty.
 */
import { constants, type FSWatcher, watch as watchDirectory } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { maxKeyBytes } from './parse-key.ts';
import { describeFailure, type KeyStore, KeyStoreError } from './store.ts';

const pollMs = 1000;
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
        throw new KeyStoreError(`${describe}: the file ${describeFailure(error)}`);
      }
    },
    watch: (onChange) => watchFile(path, onChange),
  };
}

/**
 * Whoever writes in place and slowly shows half a key for a moment, and half a key looks like one. Renames and
 * swaps are whole at once; they pay the short wait too, where the file is as young as that.
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
  // Without O_NONBLOCK, opening a FIFO that nobody writes to would occupy a thread for ever.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
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

function watchFile(path: string, onChange: () => void): () => void {
  let seen: string | undefined;
  let watcher: FSWatcher | undefined;
  let looking = false;
  let lookAgain = false;
  let closed = false;

  const unwatch = () => {
    watcher?.close();
    watcher = undefined;
  };

  const watchAnew = () => {
    unwatch();
    if (closed) return;
    try {
      watcher = watchDirectory(dirname(path), { persistent: false }, () => void look(false));
      // Out of inotify watches, or the directory has gone: the poll goes on alone.
      watcher.on('error', unwatch);
    } catch {
      watcher = undefined;
    }
  };

  const look = async (polled: boolean): Promise<void> => {
    if (looking) {
      lookAgain = true;
      return;
    }
    looking = true;
    const now = await signatureOf(path);
    looking = false;
    if (closed) return;
    const changed = now !== seen;
    seen = now;
    // A change that only the poll saw says that the watch is deaf: its directory was replaced.
    if (polled && (changed || watcher === undefined)) watchAnew();
    if (changed) onChange();
    if (lookAgain) {
      lookAgain = false;
      await look(false);
    }
  };

  watchAnew();
  // The first look always differs from nothing and reports: a change between load and watch is not missed.
  void look(false);
  const poll = setInterval(() => void look(true), pollMs);
  poll.unref();
  return () => {
    closed = true;
    clearInterval(poll);
    unwatch();
  };
}

/** What tells one state of the file from another, without reading it; `absent` while it cannot be seen. */
async function signatureOf(path: string): Promise<string> {
  try {
    const facts = await stat(path, { bigint: true });
    return [facts.dev, facts.ino, facts.size, facts.mtimeNs, facts.ctimeNs].join(':');
  } catch {
    return 'absent';
  }
}
