/**
 * Opens and reads what a setting names as a file. The opening of a pipe that nothing writes to would occupy a thread
 * for ever, and of a device there may be no end: only a file is read.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { errorCode } from '../errors.ts';

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

/**
 * The owner and mode of a file, as ": it belongs to user 0 …", for the person who has to change them. Empty where they
 * cannot be seen.
 */
function describeOwner(path: string): string {
  try {
    const { uid, gid, mode } = statSync(path);
    const own = process.getuid === undefined ? '' : `; this process is user ${process.getuid()}`;
    return `: it belongs to user ${uid} and group ${gid}, mode ${(mode & 0o7777).toString(8).padStart(4, '0')}${own}`;
  } catch {
    return '';
  }
}

/** The same where the file may not be read; empty where the error is another one. */
export function explainDenied(path: string, error: unknown): string {
  return ['EACCES', 'EPERM'].includes(errorCode(error) ?? '') ? describeOwner(path) : '';
}

function refuseOther(found: Stats): void {
  if (found.isFile() || found.isDirectory()) return;
  if (found.isFIFO()) throw new NotAFileError('a pipe');
  throw new NotAFileError(found.isSocket() ? 'a socket' : 'a device');
}

/**
 * Says why a file that a setting names can't be read, with what its owner needs to know to change that. One line,
 * without a full stop: the path, the error's code, and the owner and mode where they can be seen.
 *
 * @param what the file is, as "the callers file"
 */
export function describeUnreadable(what: string, file: string, cause: unknown): string {
  // Anything else may be a secret in the wrong setting.
  const path = /[/.\\]/.test(file) ? file : '(not a path)';
  if (cause instanceof NotAFileError) return `${what} ${path} ${cause.message}`;
  const code = errorCode(cause) ?? 'unknown error';
  const said = `${what} ${path} can't be read (${code})`;
  return code === 'ENOENT' ? `${said}: it does not exist` : `${said}${describeOwner(file)}`;
}
