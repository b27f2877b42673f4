/**
 * Opens and reads what a setting names as a file. The opening of a pipe that nothing writes to would occupy a thread
 * for ever, and of a device there may be no end: only a file is read.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** The path leads to something that is no file, such as a pipe. A folder fails with EISDIR, as everywhere. */
export class NotAFileError extends Error {
  override readonly name = 'NotAFileError';
  /** As "a pipe". */
  readonly kind: string;

  constructor(kind: string) {
    super(`is ${kind}, not a file`);
    this.kind = kind;
  }
}

/** Windows has no O_NONBLOCK, and no pipes among its files. */
const flags = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0);

/** A file, opened for reading; the caller closes it. @throws NotAFileError, or the system's error */
export async function openFile(path: string): Promise<FileHandle> {
  const file = await open(path, flags);
  try {
    refuseOther(await file.stat());
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The whole text of a file. @throws NotAFileError, or the system's error */
export async function readText(path: string): Promise<string> {
  const file = await openFile(path);
  try {
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

/** The same at once, for the start. @throws NotAFileError, or the system's error */
export function readTextSync(path: string): string {
  const file = openSync(path, flags);
  try {
    refuseOther(fstatSync(file));
    return readFileSync(file, 'utf8');
  } finally {
    closeSync(file);
  }
}

function refuseOther(found: Stats): void {
  if (found.isFile() || found.isDirectory()) return;
  if (found.isFIFO()) throw new NotAFileError('a pipe');
  throw new NotAFileError(found.isSocket() ? 'a socket' : 'a device');
}
