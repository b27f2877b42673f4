/** The `token` commands that change nothing: `list` and `whose`. */
import type { ListedCaller, ListedToken } from '../callers/callers-text.ts';
import { listCallers } from '../callers/callers-text.ts';
import { claimedOrigin } from '../callers/jwt-rule.ts';
import { describeUnknownToken, digestOf, mayBeToken } from '../callers/token.ts';
import { parseRfc3339 } from '../http/date.ts';
import { visible } from '../log/text-lines.ts';
import type { CallersFileArgs } from './token.ts';
import {
  judgeCallersText,
  requireFile,
  requireText,
  rulesHere,
  runTokenCommand,
  shownDigits,
  type TokenExit,
  TokenFailure,
  type TokenIo,
  tellProblems,
  UsageError,
} from './token-file.ts';

const dayMs = 86_400_000;
/** A token that ends sooner is marked. */
const noticeDays = 14;

export interface ListTokensArgs extends CallersFileArgs {
  /** One object, for programs. */
  readonly json?: boolean;
}

/** `token list`: names, the first characters of digests, expiry, and what each caller may do, and how often. */
export function listTokens(args: ListTokensArgs, io: TokenIo): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const file = requireFile(args.file);
    const text = await requireText(file);
    const rules = await rulesHere();
    const now = Date.now();
    if (args.json === true) {
      const callers = listCallers(text).map((caller) => jsonOf(caller, now));
      io.stdout(`${JSON.stringify({ callers, problems: judgeCallersText(file, text, rules) }, null, 2)}\n`);
      return 0;
    }
    const rows = listCallers(text).flatMap((caller) => rowsOf(caller, now));
    const table = [['NAME', 'DIGEST', 'EXPIRES', 'STATE', 'LIMITS', 'OPERATIONS'], ...rows].map((row) =>
      row.map(visible),
    );
    const widths = [0, 1, 2, 3, 4].map((column) =>
      Math.max(...table.map((row) => (row[column] ?? '').length)),
    );
    for (const row of table) {
      io.stdout(`${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}\n`);
    }
    tellProblems(file, text, rules, io);
    return 0;
  });
}

/** `token whose`: says of a token on standard input which caller and entry it has. Prints nothing of it. */
export function tellWhose(
  args: CallersFileArgs,
  io: TokenIo,
  read: () => Promise<string>,
): Promise<TokenExit> {
  return runTokenCommand(args, io, async () => {
    const file = requireFile(args.file);
    const text = await requireText(file);
    const presented = (await read()).trim();
    if (presented === '') throw new UsageError('give the token on standard input, as by "< reports.token"');
    const digest = digestOf(presented);
    const now = Date.now();
    for (const caller of listCallers(text)) {
      const index = caller.tokens.findIndex(({ sha256 }) => sha256 === digest);
      const token = caller.tokens[index];
      if (token === undefined) continue;
      const state = stateOf(token, index === caller.tokens.length - 1, now);
      const weak = mayBeToken(presented) ? '' : ' A gateway refuses it all the same: it is too weak.';
      io.stdout(
        `${visible(`${caller.name}: token ${index + 1} of ${caller.tokens.length}, digest ${digest.slice(0, shownDigits)}, expires ${token.expires ?? 'never'}, ${state}. May do: ${grantsOf(caller)}.${weak}`)}\n`,
      );
      tellProblems(file, text, await rulesHere(), io);
      return 0;
    }
    const isJwt = claimedOrigin(presented) !== undefined;
    const what = isJwt ? 'a JWT, whose caller GET /me tells' : describeUnknownToken(presented);
    throw new TokenFailure(`no caller of ${file} has it: ${what}`);
  });
}

function rowsOf(caller: ListedCaller, now: number): readonly string[][] {
  const { name, tokens, limits, weight, otherWays } = caller;
  const share = weight === 1 ? [] : [`weight ${weight}`];
  const howOften = [...(limits.length > 0 ? [limits.join(', ')] : []), ...share].join('; ') || '-';
  const may = [howOften, grantsOf(caller)];
  const lines = tokens.map((token, index) => [
    name,
    token.sha256.slice(0, shownDigits),
    token.expires ?? 'never',
    stateOf(token, index === tokens.length - 1, now),
    ...may,
  ]);
  return lines.length > 0 ? lines : [[name, '-', '-', otherWays.join(', ') || 'no token', ...may]];
}

function grantsOf({ operations, workspaces, enforce }: ListedCaller): string {
  const where = workspaces === undefined ? '' : ` in ${workspaces.join(', ') || 'no workspace'}`;
  return `${operations.join(', ') || '-'}${where}${enforce ? '' : ' (not enforced)'}`;
}

function jsonOf(caller: ListedCaller, now: number): object {
  const { name, tokens, operations, workspaces, limits, weight, enforce, otherWays } = caller;
  return {
    name,
    operations,
    ...(workspaces && { workspaces }),
    limits,
    weight,
    enforce,
    tokens: tokens.map((token, index) => ({
      digest: token.sha256.slice(0, shownDigits),
      expires: token.expires ?? null,
      state: stateOf(token, index === tokens.length - 1, now).split(',', 1)[0],
      endsInDays: daysLeft(token, now),
    })),
    otherWays,
  };
}

function stateOf(token: ListedToken, isNewest: boolean, now: number): string {
  const expiresAt = token.expires === undefined ? Number.POSITIVE_INFINITY : parseRfc3339(token.expires);
  if (expiresAt === undefined) return 'bad date';
  if (expiresAt <= now) return 'expired';
  const days = Math.ceil((expiresAt - now) / dayMs);
  const ends = days > noticeDays ? '' : `, ends in ${days} ${days === 1 ? 'day' : 'days'}`;
  return `${isNewest ? 'newest' : 'older'}${ends}`;
}

/** Null where the token does not end, or its date cannot be read. */
function daysLeft({ expires }: ListedToken, now: number): number | null {
  const expiresAt = expires === undefined ? undefined : parseRfc3339(expires);
  return expiresAt === undefined ? null : Math.ceil((expiresAt - now) / dayMs);
}
