/**
 * What the token commands share: the callers file they change, how they judge it as a gateway would, and what a
 * failure is called. Exit status: 0 done, 1 failed or written but not in force, 2 wrong usage.
 */

import { type CallersFileRules, callersFileRules, inFile, readCallersFile } from '../callers/callers-file.ts';
import {
  CallersTextError,
  emptyCallersText,
  findCaller,
  type ListedCaller,
  listCallers,
} from '../callers/callers-text.ts';
import { JsonTextError } from '../callers/json.ts';
import { ConfigError, readSettings } from '../config/config.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import { workspaceNames } from '../config/workspaces.ts';
import { errorCode } from '../errors.ts';
import { editFile, FileBusyError, readIfThere } from '../files/edit.ts';
import { describeUnreadable, NotAFileError } from '../files/read.ts';
import { visible } from '../log/text-lines.ts';
import { operationsOf } from '../operations.ts';
import { loadWhatThereIs } from './environment.ts';

export type TokenExit = 0 | 1 | 2;

/** So much of a token's digest is shown. */
export const shownDigits = 12;

/** Where a command writes. Each text is a whole line or more, with its line break. */
export interface TokenIo {
  stdout(text: string): void;
  stderr(text: string): void;
}

/** The command line asks for what cannot be: exit status 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The command line is right, but the file does not have what it names: exit status 1. */
export class TokenFailure extends Error {
  override readonly name = 'TokenFailure';
}

/** @param file `--file`, or CALLERS_FILE */
export function requireFile(file: string | undefined): string {
  if (file !== undefined && file !== '') return file;
  throw new UsageError('no callers file: set CALLERS_FILE or give --file');
}

/** The text of a file that must be there. */
export async function requireText(file: string): Promise<string> {
  const text = await readIfThere(file).catch((cause: unknown) => {
    throw new TokenFailure(describeUnreadable('the callers file', file, cause));
  });
  if (text === undefined) throw new TokenFailure(`there is no file ${file}`);
  return text;
}

/** The caller of this name, which must be in the text. */
export function requireCaller(text: string, name: string): ListedCaller {
  const caller = findCaller(text, name);
  if (caller !== undefined) return caller;
  const names = listCallers(text).map((one) => one.name);
  throw new TokenFailure(`there is no caller ${JSON.stringify(name)}${nearestOfAll(name, names)}`);
}

/** Changes a file that must be there, as one step. @returns the new text */
export async function editCallers(file: string, edit: (text: string) => string): Promise<string> {
  await requireText(file);
  return editFile(file, (before) => edit(before ?? emptyCallersText));
}

/** What keeps a gateway from taking this text. */
export function judgeCallersText(file: string, text: string, rules: CallersFileRules): readonly string[] {
  return inFile(file, readCallersFile(text, rules).problems);
}

/** Lists what keeps a gateway from taking this text; whether there is anything. */
export function tellProblems(file: string, text: string, rules: CallersFileRules, io: TokenIo): boolean {
  const problems = judgeCallersText(file, text, rules);
  if (problems.length === 0) return false;
  io.stderr(
    `The gateway refuses this file and keeps the version before until these are corrected (judged with ${settingsOfRules.join(', ')} as set here):\n`,
  );
  for (const problem of problems) io.stderr(`  ${visible(problem)}\n`);
  return true;
}

/** Says whether a change is in force. A revoked token may be a stolen one: a file that no gateway takes is status 1. */
export function tellWhetherInForce(
  file: string,
  text: string,
  rules: CallersFileRules,
  io: TokenIo,
): TokenExit {
  if (tellProblems(file, text, rules, io)) {
    io.stderr('So the change is written, but NOT in force.\n');
    return 1;
  }
  io.stderr(
    'A running gateway that reads this file follows within a second, unless its log says that it refuses the file. One with a copy of it, as under systemd, needs a restart.\n',
  );
  return 0;
}

/** Runs a command and turns its failures into a message and an exit status. */
export async function runTokenCommand(
  { file }: { readonly file: string | undefined },
  io: TokenIo,
  work: () => Promise<TokenExit>,
): Promise<TokenExit> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConfigError) {
      io.stderr(`${visible(error instanceof ConfigError ? error.problems.join('; ') : error.message)}\n`);
      return 2;
    }
    io.stderr(`${visible(describeFailure(file ?? '', error))}\n`);
    return 1;
  }
}

function describeFailure(file: string, error: unknown): string {
  if (error instanceof JsonTextError) return `the callers file ${file} is not valid JSON: ${error.message}`;
  if (error instanceof FileBusyError) {
    return `another program is changing the callers file: ${error.message}; remove it if there is none`;
  }
  if (error instanceof CallersTextError) return `${file}: ${error.message}`;
  if (error instanceof TokenFailure) return error.message;
  if (error instanceof NotAFileError) return describeUnreadable('the callers file', file, error);
  const code = errorCode(error);
  if (code === undefined) throw error;
  // A file that is missing is made.
  const why = code === 'ENOENT' ? ': its folder does not exist' : '';
  return `the callers file ${file} can't be read or written (${code})${why}`;
}

/** The settings that a gateway judges a callers file by. */
const settingsOfRules = ['HOST', 'UPSTREAM_READS', 'FORWARD_REQUEST_HEADERS', 'WORKSPACES'] as const;

/**
 * The callers file that was given, or the one that the settings name.
 *
 * @param envFile `--env-file`: the rules come from it as well
 * @throws ConfigError naming what is wrong with that file
 */
export async function callersFileOf(given?: string, envFile?: string): Promise<string | undefined> {
  const environment = await loadWhatThereIs(envFile);
  return given ?? environment['CALLERS_FILE'];
}

/** What a gateway with the settings of this process judges it by. @throws ConfigError where one of those settings is wrong; what else a gateway needs may be missing */
export async function rulesHere(): Promise<CallersFileRules> {
  const environment = await loadWhatThereIs();
  const config = readSettings(environment, settingsOfRules);
  return callersFileRules(config, operationsOf(config), workspaceNames(environment, config.WORKSPACES));
}
