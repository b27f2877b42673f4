/**
 * The `token` command: makes, lists and revokes callers' tokens. A token is shown once, on standard output and
 * alone, so that a script can catch it; everything for people goes to standard error.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage.
 */
import { defaultOperations } from '../callers/callers-file.ts';
import { callerName, readCallersFile } from '../callers/callers-file-policy.ts';
import {
  addToken,
  CallersTextError,
  emptyCallersText,
  type ListedToken,
  listCallers,
  removeTokens,
} from '../callers/callers-text-policy.ts';
import { editFile, errorCode, FileBusyError, readIfThere } from '../callers/file-edit.ts';
import { JsonTextError } from '../callers/json-tree.ts';
import { parseRfc3339 } from '../callers/rfc3339-policy.ts';
import { didYouMean } from '../callers/spelling-policy.ts';
import { digestOf, mintToken } from '../callers/token.ts';

export type TokenExit = 0 | 1 | 2;

/** Where the command writes. Each text is a whole line or more, with its line break. */
export interface TokenIo {
  stdout(text: string): void;
  stderr(text: string): void;
}

export interface CreateTokenArgs {
  readonly name: string;
  /** `--file`, or CALLERS_FILE. */
  readonly file: string | undefined;
  /** `--expires`: a date and time (RFC 3339), a date, or days from now as `90d`. */
  readonly expires?: string | undefined;
  /** `--operation`, for a caller that is new; `list-accounts` where left out. */
  readonly operations?: readonly string[] | undefined;
}

export interface ListTokensArgs {
  readonly file: string | undefined;
}

export interface RevokeTokenArgs {
  readonly name: string;
  readonly file: string | undefined;
  /** The first characters of the token's digest, at least 4; left out, every token of the caller. */
  readonly digest?: string | undefined;
}

/** Names of the subcommands: a caller of such a name could not be typed. */
const reservedNames = ['list', 'revoke', 'help'];
const shownDigits = 12;
const dayMs = 86_400_000;

class UsageError extends Error {
  override readonly name = 'UsageError';
}

class Failure extends Error {
  override readonly name = 'Failure';
}

function requireFile(file: string | undefined): string {
  if (file !== undefined && file !== '') return file;
  throw new UsageError('no callers file: set CALLERS_FILE or give --file');
}

function requireName(name: string): string {
  if (!callerName.test(name)) {
    throw new UsageError(
      'a caller name has 1 to 64 letters, digits and . _ @ -, and begins with a letter or digit',
    );
  }
  if (reservedNames.includes(name)) throw new UsageError(`"${name}" is a subcommand, not a caller name`);
  return name;
}

/** @returns RFC 3339 in UTC; `undefined` for a token that does not expire */
function expiryOf(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const days = /^(\d{1,5})d$/.exec(text)?.[1];
  const now = Date.now();
  const written = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00Z` : text;
  const expiresAt = days === undefined ? parseRfc3339(written) : now + Number(days) * dayMs;
  if (expiresAt === undefined) {
    throw new UsageError('--expires takes a date as 2027-01-01 or 2027-01-01T00:00:00Z, or days as 90d');
  }
  if (expiresAt <= now) throw new UsageError('--expires lies in the past');
  return new Date(expiresAt).toISOString().replace(/\.\d+Z$/, 'Z');
}

async function requireText(file: string): Promise<string> {
  const text = await readIfThere(file);
  if (text === undefined) throw new Failure(`there is no file ${file}`);
  return text;
}

function warnOfProblems(text: string, io: TokenIo): void {
  const { problems } = readCallersFile(text, { loopbackOnly: true });
  if (problems.length === 0) return;
  io.stderr('The gateway will refuse this file until these are corrected:\n');
  for (const problem of problems) io.stderr(`  ${problem}\n`);
}

async function run(io: TokenIo, work: () => Promise<void>): Promise<TokenExit> {
  try {
    await work();
    return 0;
  } catch (error) {
    if (error instanceof UsageError) {
      io.stderr(`${error.message}\n`);
      return 2;
    }
    if (error instanceof JsonTextError) io.stderr(`the callers file is not valid JSON: ${error.message}\n`);
    else if (error instanceof FileBusyError) {
      io.stderr(`somebody else is changing the callers file: ${error.message}; remove it if nobody is\n`);
    } else if (errorCode(error) !== undefined) {
      io.stderr(`the callers file can't be read or written (${errorCode(error)})\n`);
    } else if (error instanceof Failure || error instanceof CallersTextError) io.stderr(`${error.message}\n`);
    else throw error;
    return 1;
  }
}

/** `token NAME`: makes a token, adds its digest to the file as the caller's newest, and shows the token once. */
export function createToken(args: CreateTokenArgs, io: TokenIo): Promise<TokenExit> {
  return run(io, async () => {
    const name = requireName(args.name);
    const file = requireFile(args.file);
    const expires = expiryOf(args.expires);
    const token = mintToken();
    const entry = { sha256: digestOf(token), ...(expires === undefined ? {} : { expires }) };
    let isNewCaller = false;
    const text = await editFile(file, (before) => {
      const added = addToken(before ?? emptyCallersText, name, entry, args.operations ?? defaultOperations);
      isNewCaller = added.isNewCaller;
      return added.text;
    });
    io.stdout(`${token}\n`);
    const until = expires === undefined ? 'does not expire' : `expires ${expires}`;
    io.stderr(
      `Added a token of ${name} to ${file}: digest ${entry.sha256.slice(0, shownDigits)}, ${until}.\n` +
        'It is shown this once. A running gateway knows it within a second.\n',
    );
    if (isNewCaller) {
      const granted = (args.operations ?? defaultOperations).join(', ') || 'nothing';
      io.stderr(`${name} is a new caller and may do: ${granted}.\n`);
    } else if (args.operations !== undefined) {
      io.stderr(`${name} was there already: what it may do is unchanged.\n`);
    }
    warnOfProblems(text, io);
  });
}

function stateOf(token: ListedToken, isNewest: boolean, now: number): string {
  const expiresAt = token.expires === undefined ? Number.POSITIVE_INFINITY : parseRfc3339(token.expires);
  if (expiresAt === undefined) return 'bad date';
  if (expiresAt <= now) return 'expired';
  return isNewest ? 'newest' : 'older';
}

/** `token list`: names, the first characters of digests, expiry. */
export function listTokens(args: ListTokensArgs, io: TokenIo): Promise<TokenExit> {
  return run(io, async () => {
    const text = await requireText(requireFile(args.file));
    const now = Date.now();
    const rows = listCallers(text).flatMap(({ name, tokens, otherWays }) => {
      const lines = tokens.map((token, index) => [
        name,
        token.sha256.slice(0, shownDigits),
        token.expires ?? 'never',
        stateOf(token, index === tokens.length - 1, now),
      ]);
      return lines.length > 0 ? lines : [[name, '-', '-', otherWays.join(', ') || 'no token']];
    });
    const table = [['NAME', 'DIGEST', 'EXPIRES', 'STATE'], ...rows];
    const widths = [0, 1, 2].map((column) => Math.max(...table.map((row) => (row[column] ?? '').length)));
    for (const row of table) {
      io.stdout(`${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}\n`);
    }
    warnOfProblems(text, io);
  });
}

/** `token revoke NAME [DIGEST]`: removes one token of the caller, or all of them. */
export function revokeToken(args: RevokeTokenArgs, io: TokenIo): Promise<TokenExit> {
  return run(io, async () => {
    const file = requireFile(args.file);
    const prefix = args.digest?.toLowerCase() ?? '';
    if (args.digest !== undefined && !/^[0-9a-f]{4,64}$/.test(prefix)) {
      throw new UsageError("give at least 4 characters of the token's digest, as token list shows it");
    }
    await requireText(file);
    let removed: string[] = [];
    await editFile(file, (before) => {
      const callers = listCallers(before ?? emptyCallersText);
      const caller = callers.find(({ name }) => name === args.name);
      if (caller === undefined) {
        const near = didYouMean(
          args.name,
          callers.map(({ name }) => name),
        );
        throw new Failure(`there is no caller ${JSON.stringify(args.name)}${near}`);
      }
      removed = caller.tokens.map(({ sha256 }) => sha256).filter((digest) => digest.startsWith(prefix));
      if (removed.length === 0) {
        throw new Failure(
          `${args.name} has no ${prefix === '' ? 'token' : `token whose digest begins with ${prefix}`}`,
        );
      }
      if (prefix !== '' && removed.length > 1) {
        throw new Failure(`more than one token of ${args.name} begins with ${prefix}; give more characters`);
      }
      return removeTokens(before ?? emptyCallersText, args.name, new Set(removed));
    });
    for (const digest of removed) {
      io.stderr(`Revoked the token ${digest.slice(0, shownDigits)} of ${args.name}.\n`);
    }
    io.stderr('A running gateway refuses it within a second.\n');
  });
}
