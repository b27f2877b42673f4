/**
 * Opens, reads and follows what a setting names as a file. The opening of a pipe that nothing writes to would occupy a
 * thread for ever, and of a device there may be no end: only a file is read.
 *
 * Followed files have one rule for the key, the callers and the certificate: what is read is believed once the file has
 * stood for 50 ms.
 */
import { hash } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  type Stats,
  statSync,
  unwatchFile,
  watchFile,
} from 'node:fs';
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
async function openFile(path: string): Promise<FileHandle> {
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

/** The same of a file or a pipe, whose writer is waited for. @throws NotAFileError, or the system's error */
export async function readTextOrPipe(path: string): Promise<string> {
  const file = await open(path);
  try {
    const found = await file.stat();
    if (!found.isFIFO()) refuseOther(found);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

/** The same of a file at once, for the start. @throws NotAFileError, or the system's error */
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

const lookEveryMs = 250;
/** A file written within this time may be written again with the same time stamp: some file systems count in 2 s. */
const stampTrustedMs = 2_000;
/**
 * A file written this recently may be written still: a program that writes in place and slowly shows half of it for a
 * moment, and half a key looks like a key. Of a pair, one file may be new and the other not yet. Renames and swaps are
 * whole at once; they pay the short wait too. Longer: fewer versions are refused that were about to be whole, and each new
 * one is in force later.
 */
const settledMs = 50;
/** A file that is written without end is read all the same. */
const mostSettlings = 20;
/** A failure may have another cause than the file (no file descriptor is free), which no change of it ends. */
const retryMs = 500;

export interface FileWatch {
  close(): void;
}

/**
 * Calls back when the file at this path has changed, has gone or has come back; again when its time stamp can be
 * trusted, and once soon after the start, for a change that was made before the first look. A call is a reason to
 * read the file and compare, and no promise that it differs.
 *
 * `fs.watch` of a file goes deaf after the first atomic rename or Kubernetes `..data` swap, and works on no network
 * file system, so the file is looked at four times a second (`fs.watchFile`). This does not keep the process alive.
 */
export function watchForChanges(file: string, onChange: () => void): FileWatch {
  let timer: NodeJS.Timeout | undefined;

  function lookIn(ms: number): void {
    clearTimeout(timer);
    timer = setTimeout(onChange, ms);
    timer.unref();
  }

  function onStat(): void {
    lookIn(stampTrustedMs);
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

/**
 * The text of a file once it has stood for a while, or reads the same after that while.
 *
 * @param mostBytes of a larger file only so much is read
 * @throws NotAFileError, or the system's error
 */
export async function readSettled(path: string, mostBytes?: number): Promise<string> {
  let now = await readStamped(path, mostBytes);
  for (let times = 0; times < mostSettlings && Math.abs(Date.now() - now.writtenAt) < settledMs; times++) {
    const { text: before } = now;
    await new Promise((resolve) => setTimeout(resolve, settledMs));
    now = await readStamped(path, mostBytes);
    if (now.text === before) break;
  }
  return now.text;
}

async function readStamped(path: string, mostBytes?: number): Promise<{ text: string; writtenAt: number }> {
  const file = await openFile(path);
  try {
    const text = mostBytes === undefined ? await file.readFile('utf8') : await readStart(file, mostBytes);
    const { mtimeMs: writtenAt } = await file.stat();
    return { text, writtenAt };
  } finally {
    await file.close();
  }
}

async function readStart(file: FileHandle, mostBytes: number): Promise<string> {
  const buffer = Buffer.alloc(mostBytes);
  let length = 0;
  while (length < mostBytes) {
    const { bytesRead } = await file.read(buffer, length, mostBytes - length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return buffer.toString('utf8', 0, length);
}

/** The text of a file, or why it cannot be read. */
export type ReadFile = PromiseSettledResult<string>;

export interface FollowedFilesOptions {
  /** What belongs together, as a certificate and its key. */
  readonly files: readonly string[];
  /** What is known of them already, in the same order. */
  readonly texts: readonly string[];
  /** One of them has changed, cannot be read any more, or can be read again. */
  onChange(found: readonly ReadFile[]): void;
}

/** Hands over what files hold, in the order of the files, whenever that has changed and has stood for a while. */
export class FollowedFiles {
  readonly #options: FollowedFilesOptions;
  readonly #watches: readonly FileWatch[];
  #known: string;
  /** The reading under way; no second one begins beside it. */
  #running: Promise<void> | undefined;
  #readAgain = false;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: FollowedFilesOptions) {
    this.#options = options;
    this.#known = digestOf(options.texts.map((value) => ({ status: 'fulfilled', value })));
    this.#watches = options.files.map((file) => watchForChanges(file, () => void this.#read()));
  }

  /** Reads now, and hands over what is found, changed or not. Never rejects. */
  readNow(): Promise<void> {
    this.#known = '';
    return this.#read();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const watch of this.#watches) watch.close();
  }

  #read(): Promise<void> {
    this.#readAgain = this.#running !== undefined;
    this.#running ??= this.#readAll().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #readAll(): Promise<void> {
    clearTimeout(this.#timer);
    do {
      this.#readAgain = false;
      let found = await this.#look();
      // A file may be away for the moment in which it is replaced.
      if (hasFailed(found) && digestOf(found) !== this.#known) {
        await new Promise((resolve) => setTimeout(resolve, settledMs));
        found = await this.#look();
      }
      if (this.#isClosed) return;
      if (hasFailed(found)) this.#readIn(retryMs);
      const digest = digestOf(found);
      if (digest === this.#known) continue;
      this.#known = digest;
      this.#options.onChange(found);
    } while (this.#readAgain);
  }

  #look(): Promise<readonly ReadFile[]> {
    return Promise.allSettled(this.#options.files.map((file) => readSettled(file)));
  }

  #readIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#read(), ms);
    this.#timer.unref();
  }
}

function hasFailed(found: readonly ReadFile[]): boolean {
  return found.some(({ status }) => status === 'rejected');
}

function digestOf(found: readonly ReadFile[]): string {
  const parts = found.map((one) =>
    one.status === 'fulfilled' ? ['text', one.value] : ['error', errorCode(one.reason) ?? String(one.reason)],
  );
  return hash('sha256', JSON.stringify(parts));
}
