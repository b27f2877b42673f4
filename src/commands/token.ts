/**
 * The `token` command: makes, lists and revokes callers' tokens. A token is shown once, on standard output and
 * alone, so that a script can catch it; everything for people goes to standard error.
 *
 * Exit status: 0 done, 1 failed or written but not in force, 2 wrong usage.
 */
import { defaultOperations } from '../callers/callers-file.ts';
import { type CallersFileRules, callerName, readCallersFile } from '../callers/callers-file-policy.ts';
import {
  addCaller,
  addToken,
  CallersTextError,
  emptyCallersText,
  findCaller,
  type ListedToken,
  listCallers,
  removeTokens,
} from '../callers/callers-text-policy.ts';
import { editFile, errorCode, FileBusyError, readIfThere } from '../callers/file-edit.ts';
import { JsonTextError } from '../callers/json-tree.ts';
import { parseRfc3339 } from '../callers/rfc3339-policy.ts';
import { digestOf, mintToken } from '../callers/token.ts';
import { ConfigError } from '../config.ts';
import { didYouMean } from '../spelling-policy.ts';
import { callersFileRules, settingsOfRules } from './callers-rules.ts';

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

/** What a file says, for a terminal: characters that would move the cursor or hide others are shown as numbers. */
function visible(text: string): string {
  return text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
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

/** Only granted names mean anything, and a gateway refuses a file with others. */
function requireOperations(
  names: readonly string[] = [],
  { operations = new Set() }: CallersFileRules,
): void {
  const unknown = names.find((name) => !operations.has(name));
  if (unknown === undefined) return;
  throw new UsageError(
    `${JSON.stringify(unknown)} is not an operation${didYouMean(unknown, operations)}; ` +
      'those of UPSTREAM_READS are known where it is set as for the gateway',
  );
}

/** Lists what keeps a gateway from taking this text; whether there is anything. */
function tellProblems(text: string, rules: CallersFileRules, io: TokenIo): boolean {
  const { problems } = readCallersFile(text, rules);
  if (problems.length === 0) return false;
  io.stderr(
    `The gateway refuses this file and keeps the version before until these are corrected (judged with ${settingsOfRules.join(', ')} as set here):\n`,
  );
  for (const problem of problems) io.stderr(`  ${visible(problem)}\n`);
  return true;
}

/** A promise to somebody who may be revoking a stolen token: never made for a file that no gateway takes. */
function tellWhetherInForce(text: string, rules: CallersFileRules, io: TokenIo): TokenExit {
  if (tellProblems(text, rules, io)) {
    io.stderr('So the change is written, but NOT in force.\n');
    return 1;
  }
  io.stderr('A running gateway follows within a second, unless its log says that it refuses the file.\n');
  return 0;
}

async function run(io: TokenIo, work: () => Promise<TokenExit>): Promise<TokenExit> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConfigError) {
      io.stderr(`${error instanceof ConfigError ? error.problems.join('\n') : error.message}\n`);
      return 2;
    }
    if (error instanceof JsonTextError)
      io.stderr(`the callers file is not valid JSON: ${visible(error.message)}\n`);
    else if (error instanceof FileBusyError) {
      io.stderr(`somebody else is changing the callers file: ${error.message}; remove it if nobody is\n`);
    } else if (errorCode(error) !== undefined) {
      io.stderr(`the callers file can't be read or written (${errorCode(error)})\n`);
    } else if (error instanceof Failure || error instanceof CallersTextError)
      io.stderr(`${visible(error.message)}\n`);
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
    const rules = await callersFileRules();
    requireOperations(args.operations, rules);
    const token = mintToken();
    const entry = { sha256: digestOf(token), ...(expires === undefined ? {} : { expires }) };
    let isNewCaller = false;
    const text = await editFile(file, (before) => {
      const text = before ?? emptyCallersText;
      isNewCaller = findCaller(text, name) === undefined;
      return isNewCaller
        ? addCaller(text, name, entry, args.operations ?? defaultOperations)
        : addToken(text, name, entry);
    });
    io.stdout(`${token}\n`);
    const until = expires === undefined ? 'does not expire' : `expires ${expires}`;
    io.stderr(
      `Added a token of ${name} to ${file}: digest ${entry.sha256.slice(0, shownDigits)}, ${until}.\n` +
        'It is shown this once.\n',
    );
    if (isNewCaller) {
      const granted = (args.operations ?? defaultOperations).join(', ') || 'nothing';
      io.stderr(`${name} is a new caller and may do: ${granted}.\n`);
    } else if (args.operations !== undefined) {
      io.stderr(`${name} was there already: what it may do is unchanged.\n`);
    }
    return tellWhetherInForce(text, rules, io);
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
    const rules = await callersFileRules();
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
    const table = [['NAME', 'DIGEST', 'EXPIRES', 'STATE'], ...rows].map((row) => row.map(visible));
    const widths = [0, 1, 2].map((column) => Math.max(...table.map((row) => (row[column] ?? '').length)));
    for (const row of table) {
      io.stdout(`${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}\n`);
    }
    tellProblems(text, rules, io);
    return 0;
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
    const rules = await callersFileRules();
    let removed: string[] = [];
    const text = await editFile(file, (before) => {
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
      io.stderr(`Revoked the token ${digest.slice(0, shownDigits)} of ${visible(args.name)}.\n`);
    }
    return tellWhetherInForce(text, rules, io);
  });
}
