/**
 * The `token` commands: callers and their tokens in the callers file. A token is shown once, on standard output and
 * alone, so that a script can catch it; everything for people goes to standard error.
 */
import { writtenLimit } from '../callers/bucket.ts';
import { usualWorkspaces } from '../callers/caller.ts';
import {
  type CallersFileRules,
  callerName,
  defaultOperations,
  parseLimits,
  unnamedWritten,
} from '../callers/callers-file.ts';
import {
  addCaller,
  addToken,
  emptyCallersText,
  findCaller,
  type ListedCaller,
  removeCaller,
  removeTokens,
  setMembers,
} from '../callers/callers-text.ts';
import { digestOf, mintToken } from '../callers/token.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import { ConfigValueError } from '../config/values.ts';
import { editFile } from '../files/edit.ts';
import { parseRfc3339 } from '../http/date.ts';
import { visible } from '../log/text-lines.ts';
import {
  editCallers,
  requireCaller,
  requireFile,
  rulesHere,
  runTokenCommand,
  shownDigits,
  type TokenExit,
  TokenFailure,
  type TokenIo,
  tellWhetherInForce,
  UsageError,
} from './token-file.ts';

export interface CallersFileArgs {
  /** `--file`, or CALLERS_FILE. */
  readonly file: string | undefined;
}

export interface CallerArgs extends CallersFileArgs {
  readonly name: string;
}

export interface CreateTokenArgs extends CallerArgs {
  /** `--expires`: a date and time (RFC 3339), a date, days from now as `30d`, or `never`; 90 days where left out. */
  readonly expires?: string | undefined;
  /** `--operation`, for a caller that is new; `list-accounts` where left out. */
  readonly operations?: readonly string[] | undefined;
  /** `--workspace`, for a caller that is new; left to the gateway where left out. */
  readonly workspaces?: readonly string[] | undefined;
}

export interface OperationsArgs extends CallerArgs {
  readonly operations: readonly string[];
}

export interface RevokeTokenArgs extends CallerArgs {
  /** The first characters of the token's digest, at least 4; left out, every token of the caller. */
  readonly digest?: string | undefined;
}

const dayMs = 86_400_000;
const usualDays = 90;

/** `token create NAME`: makes a token, adds its digest to the file as the caller's newest, and shows the token once. */
export function createToken(args: CreateTokenArgs, io: TokenIo): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const { name, operations = defaultOperations, workspaces } = args;
    requireName(name);
    const file = requireFile(args.file);
    const expires = expiryOf(args.expires);
    const rules = await rulesHere();
    requireOperations(operations, rules);
    requireWorkspaces(workspaces ?? [], rules);
    const token = mintToken();
    const entry = { sha256: digestOf(token), ...(expires === undefined ? {} : { expires }) };
    let earlier: ListedCaller | undefined;
    const text = await editFile(file, (before = emptyCallersText) => {
      earlier = findCaller(before, name);
      if (earlier === undefined) {
        if (workspaces === undefined) requireUsualWorkspace(rules);
        return addCaller(before, name, entry, operations, workspaces);
      }
      if (workspaces !== undefined) {
        throw new UsageError(
          `${name} exists already, and --workspace is for a new caller: use "token set ${name} --workspace ${workspaces.join(' ')}"`,
        );
      }
      if (args.operations === undefined) return addToken(before, name, entry);
      throw new UsageError(
        `${name} exists already, and --operation is for a new caller: use "token grant ${name} ${operations.join(' ')}"`,
      );
    });
    io.stdout(`${token}\n`);
    const until = expires === undefined ? 'does not expire' : `expires ${expires}`;
    io.stderr(
      `Added a token of ${name} to ${file}: digest ${entry.sha256.slice(0, shownDigits)}, ${until}.\n` +
        'It is shown this once.\n',
    );
    tellCaller(name, earlier, `${operations.join(', ') || 'nothing'}${placeOf(workspaces, rules)}`, io);
    return tellWhetherInForce(file, text, rules, io);
  });
}

export interface SetCallerArgs extends CallerArgs {
  /** `--limit`: `20/1s,5000/1d`, or `none`. */
  readonly limit?: string | undefined;
  readonly weight?: string | undefined;
  readonly workspaces?: readonly string[] | undefined;
}

/** `token set NAME`: sets limits, weight or workspaces of a caller that exists. */
export function setCaller(args: SetCallerArgs, io: TokenIo): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const { name, workspaces } = args;
    const file = requireFile(args.file);
    const limits = limitsOf(args.limit);
    const weight = weightOf(args.weight);
    if (limits === undefined && weight === undefined && workspaces === undefined) {
      throw new UsageError('give at least one of --limit, --weight and --workspace');
    }
    const rules = await rulesHere();
    requireWorkspaces(workspaces ?? [], rules);
    const text = await editCallers(file, (before) => {
      requireCaller(before, name);
      return setMembers(before, name, { limits, weight, workspaces });
    });
    const told = [
      ...(limits === undefined ? [] : [limits.length === 0 ? 'no limit' : `limits ${limits.join(', ')}`]),
      ...(weight === undefined ? [] : [`weight ${weight}`]),
      ...(workspaces === undefined ? [] : [`workspaces ${workspaces.join(', ')}`]),
    ];
    io.stderr(`${visible(`${name} now has ${told.join('; ')}`)}.\n`);
    return tellWhetherInForce(file, text, rules, io);
  });
}

/** `token grant NAME OPERATION…`: allows a caller further operations. */
export function grantOperations(args: OperationsArgs, io: TokenIo): Promise<TokenExit> {
  return changeOperations(args, io, ({ operations: granted }, rules) => {
    requireOperations(args.operations, rules);
    return [...new Set([...granted, ...args.operations])];
  });
}

/** `token deny NAME OPERATION…`: takes operations from a caller, also those that no gateway has any more. */
export function denyOperations(args: OperationsArgs, io: TokenIo): Promise<TokenExit> {
  return changeOperations(args, io, ({ operations: granted }, rules) => {
    requireOperations(
      args.operations.filter((operation) => !granted.includes(operation)),
      { ...rules, operations: new Set([...granted, ...rules.operations]) },
    );
    return granted.filter((operation) => !args.operations.includes(operation));
  });
}

/** `token revoke NAME [DIGEST]`: removes one token of the caller, or all of them. The caller stays. */
export function revokeToken(args: RevokeTokenArgs, io: TokenIo): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const file = requireFile(args.file);
    const prefix = args.digest?.toLowerCase() ?? '';
    if (args.digest !== undefined && !/^[0-9a-f]{4,64}$/.test(prefix)) {
      throw new UsageError("give at least 4 characters of the token's digest, as token list shows it");
    }
    const rules = await rulesHere();
    let removed: readonly string[] = [];
    const text = await editCallers(file, (before) => {
      removed = digestsToRevoke(requireCaller(before, args.name), prefix);
      return removeTokens(before, args.name, new Set(removed));
    });
    for (const digest of removed) {
      io.stderr(`Revoked the token ${digest.slice(0, shownDigits)} of ${visible(args.name)}.\n`);
    }
    return tellWhetherInForce(file, text, rules, io);
  });
}

/** `token remove NAME`: removes a caller, with its tokens and every other way to be this caller. */
export function removeNamedCaller(args: CallerArgs, io: TokenIo): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const file = requireFile(args.file);
    const rules = await rulesHere();
    let tokens = 0;
    let otherWays: readonly string[] = [];
    const text = await editCallers(file, (before) => {
      const caller = requireCaller(before, args.name);
      tokens = caller.tokens.length;
      otherWays = caller.otherWays;
      return removeCaller(before, args.name);
    });
    const ways = [tokens === 1 ? '1 token' : `${tokens} tokens`, ...otherWays].join(', ');
    io.stderr(`Removed the caller ${visible(args.name)} (${ways}).\n`);
    return tellWhetherInForce(file, text, rules, io);
  });
}

function changeOperations(
  args: OperationsArgs,
  io: TokenIo,
  decide: (caller: ListedCaller, rules: CallersFileRules) => readonly string[],
): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const file = requireFile(args.file);
    const rules = await rulesHere();
    let operations: readonly string[] = [];
    let isChanged = false;
    const text = await editCallers(file, (before) => {
      const caller = requireCaller(before, args.name);
      operations = decide(caller, rules);
      isChanged = operations.length !== caller.operations.length;
      return isChanged ? setMembers(before, args.name, { operations }) : before;
    });
    const may = `may do: ${operations.join(', ') || 'nothing'}`;
    io.stderr(`${visible(`${args.name} ${isChanged ? 'now' : 'already'} ${may}`)}.\n`);
    return tellWhetherInForce(file, text, rules, io);
  });
}

function requireName(name: string): void {
  if (callerName.test(name)) return;
  throw new UsageError(
    'a caller name has 1 to 64 letters, digits and . _ @ -, and begins with a letter or digit',
  );
}

/** @returns as the callers file has them; none for `none` */
function limitsOf(written: string | undefined): readonly string[] | undefined {
  if (written === undefined) return undefined;
  if (written === 'none') return [];
  try {
    return parseLimits(written).map(writtenLimit);
  } catch (error) {
    if (!(error instanceof ConfigValueError)) throw error;
    throw new UsageError(`--limit ${error.message}; none takes them away`);
  }
}

function weightOf(written: string | undefined): number | undefined {
  if (written === undefined) return undefined;
  const weight = Number(written);
  if (written.trim() !== '' && weight >= 0.01 && weight <= 100) return weight;
  throw new UsageError('--weight takes a number from 0.01 to 100');
}

/** @returns RFC 3339 in UTC; `undefined` for a token that does not expire */
function expiryOf(text = `${usualDays}d`): string | undefined {
  if (text === 'never') return undefined;
  const days = /^(\d{1,5})d$/.exec(text)?.[1];
  const now = Date.now();
  const written = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00Z` : text;
  const expiresAt = days === undefined ? parseRfc3339(written) : now + Number(days) * dayMs;
  if (expiresAt === undefined) {
    throw new UsageError(
      '--expires takes a date as 2027-01-01 or 2027-01-01T00:00:00Z, days as 90d, or never',
    );
  }
  if (expiresAt <= now) throw new UsageError('--expires lies in the past');
  return new Date(expiresAt).toISOString().replace(/\.\d+Z$/, 'Z');
}

/** Only operations of the gateway mean anything, and it refuses a file with others. */
function requireOperations(names: readonly string[], { operations }: CallersFileRules): void {
  const unknown = names.find((name) => !operations.has(name));
  if (unknown === undefined) return;
  throw new UsageError(
    `${JSON.stringify(unknown)} is not an operation${nearestOfAll(unknown, operations)}; ` +
      'those of UPSTREAM_READS are known where it is set as for the gateway, also by --env-file',
  );
}

/** Only workspaces of the gateway mean anything, and it refuses a file with others. */
function requireWorkspaces(names: readonly string[], { workspaces }: CallersFileRules): void {
  const known = workspaces.map((name) => (name === '' ? unnamedWritten : name));
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  throw new UsageError(
    `${JSON.stringify(unknown)} is not a workspace${nearestOfAll(unknown, known)}; ` +
      'they are known where WORKSPACES is set as for the gateway, also by --env-file',
  );
}

/** Where all workspaces have names, a gateway refuses a file that names none for a caller. */
function requireUsualWorkspace({ workspaces }: CallersFileRules): void {
  if (usualWorkspaces(workspaces) !== undefined) return;
  throw new UsageError(`--workspace is required: ${workspaces.join(', ')}`);
}

/** Where a new caller may read; empty on a gateway that has the unnamed workspace alone. */
function placeOf(granted: readonly string[] | undefined, { workspaces }: CallersFileRules): string {
  if (workspaces.every((name) => name === '')) return '';
  const names = granted ?? usualWorkspaces(workspaces)?.map((name) => name || unnamedWritten) ?? [];
  return ` in ${names.join(', ') || 'no workspace'}`;
}

function tellCaller(name: string, earlier: ListedCaller | undefined, grants: string, io: TokenIo): void {
  if (earlier === undefined) {
    io.stderr(`${name} is a new caller and may do: ${grants}.\n`);
    return;
  }
  const last = earlier.tokens.at(-1);
  if (last === undefined) return;
  io.stderr(
    `${name} had ${earlier.tokens.length === 1 ? 'a token' : `${earlier.tokens.length} tokens`} already, ` +
      'which still works: this one is for a rotation. When the new one is in use, run ' +
      `"token revoke ${name} ${visible(last.sha256.slice(0, shownDigits))}".\n`,
  );
}

function digestsToRevoke({ name, tokens }: ListedCaller, prefix: string): readonly string[] {
  const digests = tokens.map(({ sha256 }) => sha256).filter((digest) => digest.startsWith(prefix));
  if (digests.length === 0) {
    throw new TokenFailure(
      `${name} has no ${prefix === '' ? 'token' : `token whose digest begins with ${prefix}`}`,
    );
  }
  if (prefix !== '' && digests.length > 1) {
    throw new TokenFailure(`more than one token of ${name} begins with ${prefix}; give more characters`);
  }
  return digests;
}
