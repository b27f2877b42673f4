/** What a place that keeps the key must be able to do, how it says that it cannot, and what of its text is a key. */
import { connectionFault, errorCode, SettingError } from '../errors.ts';
import { ProxyError } from '../exchange/proxy.ts';
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

/** What a store needs to be, to be loaded when it is named. */
export type OpenedStore = Pick<KeyStore, 'load' | 'loadPrevious'>;

/** A store that cannot give the key. The message is ours, plain, and holds no value. */
export class KeyStoreError extends SettingError {
  override readonly name = 'KeyStoreError';
}

/** The words for what the file system says most often; never its own message, which may quote what it read. */
export function describeFailure(error: unknown): string {
  if (error instanceof KeyStoreError || error instanceof NotAFileError) return error.message;
  if (error instanceof ProxyError) return `cannot be reached: ${error.message}`;
  if (error instanceof Error && error.name === 'AbortError') return 'did not answer in time';
  const code = errorCode(error) ?? '';
  const known = explained[code] ?? connectionFault(code)?.[1];
  return known ?? (/^[A-Z][A-Z0-9_]{2,40}$/.test(code) ? `failed with ${code}` : 'failed');
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
  UND_ERR_ABORTED: 'did not answer in time',
  ABORT_ERR: 'did not answer in time',
};

/** A larger header value is refused by many servers, and no key is that long. */
export const maxKeyBytes = 4096;
/** A shorter value is guessed, or a placeholder, or a word that occurs in answers by chance. */
export const minKeyCharacters = 16;

/** A value whose end has fewer different characters is a placeholder, and its end stands in ordinary texts. */
const leastDistinct = 4;

type ParsedKey = { readonly value: string } | { readonly reason: string };

/**
 * From a store's raw text to a key value, or the reason why not. A key becomes a header value, so its bytes are checked
 * before anything else can happen with them: header libraries print a value they refuse. The reason holds no text of it.
 *
 * @param text what the store gave, decoded as UTF-8; whitespace at its end is dropped
 */
export function parseKey(text: string): ParsedKey {
  if (text === '') return { reason: 'is empty' };
  const value = text.slice(0, endWithoutWhitespace(text));
  if (value === '') return { reason: 'is blank: nothing but whitespace' };
  if (value.length > maxKeyBytes) return { reason: `is longer than ${maxKeyBytes} bytes` };
  if (value.startsWith('\uFEFF')) {
    return { reason: 'begins with a byte order mark: save the file as plain text without one' };
  }
  if (value.includes('\0')) {
    return { reason: 'contains NUL characters, as text saved in UTF-16 does: save it as plain text' };
  }
  if (/[\r\n]/.test(value)) return { reason: 'has several lines: it must be the key alone, on one line' };
  if (/^\s/.test(value)) return { reason: 'begins with whitespace' };
  if (!/^[\x21-\x7e]*$/.test(value)) {
    return {
      reason: 'contains a character that is not visible ASCII (a space, an accent, a control character)',
    };
  }
  if (value.length < minKeyCharacters) return { reason: `is shorter than ${minKeyCharacters} characters` };
  // By these the search for the key finds where to compare: see `search.ts`.
  if (new Set(value.slice(-minKeyCharacters)).size < leastDistinct) {
    return {
      reason: `ends in ${minKeyCharacters} characters of which fewer than ${leastDistinct} differ: it is a placeholder and no key`,
    };
  }
  return { value };
}

/** Only ASCII whitespace: what an editor or `echo` leaves. (No regular expression: the text may be long.) */
function endWithoutWhitespace(text: string): number {
  let end = text.length;
  while (end > 0 && ' \t\r\n\v\f'.includes(text.charAt(end - 1))) end--;
  return end;
}
