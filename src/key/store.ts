/** What a place that keeps the key must be able to do, and how it says that it cannot. */
import { errorCode, SettingError } from '../errors.ts';
import { NotAFileError } from '../files/read.ts';

export interface KeyStore {
  /** Names the place, as `file:/run/secrets/key`; never a value, of `exec:` only the program's name. */
  readonly describe: string;
  /** On this machine and certain: what is missing here at the start is a mistake and ends it. */
  readonly local: boolean;
  /** Loads what the store itself needs. Rejects with a `KeyStoreError` where that is not installed. */
  prepare?(): Promise<void>;
  /** The raw text as it is kept. Rejects with a `KeyStoreError` whose message may be logged. */
  load(signal: AbortSignal): Promise<string>;
  /** The value before the current one, where the place keeps it; `undefined` where it has none. */
  loadPrevious?(signal: AbortSignal): Promise<string | undefined>;
  /** Calls back when the key may have changed; returns how to stop. A store without it is asked again. */
  watch?(onChange: () => void): () => void;
}

/** A store that cannot give the key. The message is ours, plain, and holds no value. */
export class KeyStoreError extends SettingError {
  override readonly name = 'KeyStoreError';
}

/** The words for what the file system says most often; never its own message, which may quote what it read. */
export function describeFailure(error: unknown): string {
  if (error instanceof KeyStoreError || error instanceof NotAFileError) return error.message;
  if (error instanceof Error && error.name === 'AbortError') return 'did not answer in time';
  const code = errorCode(error) ?? '';
  return explained[code] ?? (/^[A-Z][A-Z0-9_]{2,40}$/.test(code) ? `failed with ${code}` : 'failed');
}

const explained: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist: a part of its path is not a directory',
  EACCES: 'may not be used by this user',
  EPERM: 'may not be used by this user',
  EISDIR: 'is a directory',
  ELOOP: 'is a link that leads in a circle',
  EMFILE: 'cannot be used: the process has too many files open',
  ENFILE: 'cannot be used: the machine has too many files open',
  ECONNREFUSED: 'refused the connection',
  ECONNRESET: 'broke off the connection',
  ENOTFOUND: 'has a host name that is not known',
  EAI_AGAIN: 'has a host name that cannot be looked up now',
  UND_ERR_CONNECT_TIMEOUT: 'did not answer in time',
  UND_ERR_HEADERS_TIMEOUT: 'did not answer in time',
  UND_ERR_BODY_TIMEOUT: 'did not answer in time',
  UND_ERR_ABORTED: 'did not answer in time',
  UND_ERR_SOCKET: 'broke off the connection',
  ABORT_ERR: 'did not answer in time',
};
