/**
 * Edits a file in one step: a reader sees the old text or the new one, never half of one; one editor after another.
 *
 * Not by write-file-atomic: it locks within one process only, so of two commands at once one change would be lost; it
 * replaces a link whose target is not there yet; and it keeps silent where the owner cannot be kept.
 */

import { type FileHandle, link, open, readlink, realpath, rename, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode } from '../errors.ts';
import { readText } from './read.ts';

/** Another editor has the file and does not finish. */
export class FileBusyError extends Error {
  override readonly name = 'FileBusyError';
}

const tryAgainMs = 20;
const maxWaitMs = 5_000;
/** A temporary file that is older than this was left by a process that died. */
const abandonedMs = 30_000;

/** The text of a file; `undefined` where there is no such file. */
export async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readText(file);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** The file a path leads to, through links, so that the link itself stays; where nothing is there yet, too. */
async function destinationOf(file: string): Promise<string> {
  try {
    return await realpath(file);
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
    const target = await readlink(file).catch(() => undefined);
    // A link is read from the folder it is really in.
    return target === undefined ? file : destinationOf(resolve(await realpath(dirname(file)), target));
  }
}

async function unlinkQuietly(file: string): Promise<void> {
  await unlink(file).catch(() => {});
}

/**
 * Removes a file that was left behind. Between the look and the removal another editor may have removed it and
 * begun an edit of its own. So an editor links it first, which one at a time can, and looks at what the link holds.
 */
async function removeAbandoned(beside: string): Promise<void> {
  const held = `${beside}.abandoned`;
  try {
    await link(beside, held);
  } catch {
    // It is gone, or another editor is removing it, or the file system has no links and a person has to.
    return;
  }
  if (await isAbandoned(held)) await unlinkQuietly(beside);
  await unlinkQuietly(held);
}

async function isAbandoned(beside: string): Promise<boolean> {
  const left = await stat(beside).catch(() => undefined);
  return left !== undefined && Date.now() - left.mtimeMs > abandonedMs;
}

/** Opens the temporary file that will replace the other. There is one at a time, and it keeps other editors out. */
async function openBeside(beside: string): Promise<FileHandle> {
  for (let waitedMs = 0; ; waitedMs += tryAgainMs) {
    try {
      return await open(beside, 'wx', 0o600);
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
      if (await isAbandoned(beside)) await removeAbandoned(beside);
      if (waitedMs >= maxWaitMs) throw new FileBusyError(`${beside} is in the way`);
      else await sleep(tryAgainMs);
    }
  }
}

/** The new name must survive a crash, too. Not every file system lets a folder be flushed. */
async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r').catch(() => undefined);
  if (handle === undefined) return;
  await handle.sync().catch(() => {});
  await handle.close().catch(() => {});
}

/**
 * Reads, edits, writes beside, flushes and renames; one editor after another. Mode and owner stay; a new file is
 * readable by its owner alone. Where `edit` throws, nothing has changed.
 *
 * @param edit from the text, `undefined` where there is no file, to the new one
 * @returns the new text
 */
export async function editFile(file: string, edit: (text: string | undefined) => string): Promise<string> {
  const destination = await destinationOf(file);
  const beside = join(dirname(destination), `.${basename(destination)}.new`);
  const handle = await openBeside(beside);
  try {
    const text = edit(await readIfThere(destination));
    const before = await stat(destination).catch(() => undefined);
    await handle.writeFile(text, 'utf8');
    if (before !== undefined) {
      if (before.uid !== process.getuid?.() || before.gid !== process.getgid?.()) {
        await handle.chown(before.uid, before.gid);
      }
      await handle.chmod(before.mode & 0o777);
    }
    await handle.sync();
    // This process stood still for so long that another editor took the file away: what has its name now is the other's.
    if ((await handle.stat()).nlink === 0) throw new FileBusyError(`${beside} was taken over`);
    await handle.close();
    await rename(beside, destination);
    await flushFolder(dirname(destination));
    return text;
  } catch (error) {
    const isOurs = await handle.stat().then(
      ({ nlink }) => nlink > 0,
      () => true,
    );
    await handle.close().catch(() => {});
    if (isOurs) await unlinkQuietly(beside);
    throw error;
  }
}
