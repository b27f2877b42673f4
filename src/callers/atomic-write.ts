/** Replaces a file's content in one step: whoever reads it sees the old text or the new one, never half of one. */
import { randomBytes } from 'node:crypto';
import { type FileHandle, open, realpath, rename, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/** The file a path leads to, through links, so that the link itself stays; the path where nothing is there yet. */
async function destinationOf(file: string): Promise<string> {
  try {
    return await realpath(file);
  } catch {
    return file;
  }
}

async function closeQuietly(handle: FileHandle): Promise<void> {
  await handle.close().catch(() => {});
}

/**
 * Writes beside the file, flushes, renames. Mode and owner stay; a new file is readable by its owner alone.
 *
 * @param mayReplace asked last, right before the rename: `false` leaves the file as it is
 * @returns whether the file was replaced
 */
export async function writeAtomically(
  file: string,
  text: string,
  mayReplace: () => Promise<boolean>,
): Promise<boolean> {
  const destination = await destinationOf(file);
  const folder = dirname(destination);
  const beside = join(folder, `.${basename(destination)}.${randomBytes(6).toString('hex')}.tmp`);
  const before = await stat(destination).catch(() => undefined);
  const handle = await open(beside, 'wx', 0o600);
  try {
    await handle.writeFile(text, 'utf8');
    if (before !== undefined) {
      if (before.uid !== process.getuid?.() || before.gid !== process.getgid?.()) {
        await handle.chown(before.uid, before.gid);
      }
      await handle.chmod(before.mode & 0o777);
    }
    await handle.sync();
    await handle.close();
    if (!(await mayReplace())) {
      await unlink(beside);
      return false;
    }
    await rename(beside, destination);
  } catch (error) {
    await closeQuietly(handle);
    await unlink(beside).catch(() => {});
    throw error;
  }
  // The name itself must survive a crash, too. Not every file system lets a folder be flushed.
  const opened = await open(folder, 'r').catch(() => undefined);
  if (opened !== undefined) {
    await opened.sync().catch(() => {});
    await closeQuietly(opened);
  }
  return true;
}
