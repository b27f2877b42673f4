/** Says why a file that a setting names can't be read, with what its owner needs to know to change that. */
import { errorCode } from '../errors.ts';
import { describeOwner, NotAFileError } from '../files/read.ts';

/**
 * One line, without a full stop: the path, the error's code, and the owner and mode where they can be seen.
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
