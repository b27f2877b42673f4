/** The one place that reads the process's environment, `.env` included, and turns it into settings. */
import { readFileSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describeUnreadable } from '../callers/unreadable-file.ts';
import { type Config, ConfigError, readConfig } from '../config.ts';
import type { Environment } from '../key/store.ts';
import { malformedLines } from './env-file-policy.ts';

/**
 * The environment, with what a file adds: the one given, or `.env` in the working directory, where there is one. What
 * is set already wins.
 *
 * @throws ConfigError naming what `.env.example` requires and nothing sets, and what is wrong with the file; the rest
 * of it is loaded all the same, so that every other problem of the settings is found with it
 */
async function loadEnvironment(envFile?: string): Promise<Environment> {
  const isUsual = envFile === undefined;
  const file = resolve(envFile ?? '.env');
  // The default is nothing that was asked for: a folder of that name may be another program's.
  if (isUsual && !statSync(file, { throwIfNoEntry: false })?.isFile()) return process.env;
  // Only for development, so production does not pay for loading it.
  const { default: dotenv } = await import('dotenv-safe');
  // Ours, wherever we run: another project's `.env.example` beside its `.env` says nothing about us.
  const example = fileURLToPath(new URL('../../.env.example', import.meta.url));
  const problems = fileProblems(isUsual ? 'the file' : '--env-file: the file', file);
  try {
    // Without `quiet` it prints a banner among the log's lines.
    dotenv.config({ example, quiet: true, path: file });
  } catch (error) {
    // Its types name the error's class, but only as a type.
    const { missing } = error as { missing?: readonly string[] };
    if (missing === undefined) throw error;
    problems.push(...missing.map((name) => `${name} is required`));
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return process.env;
}

/** What dotenv keeps to itself: that it could not read the file, and which lines it passed over. Never a value. */
function fileProblems(what: string, file: string): string[] {
  try {
    const lines = malformedLines(readFileSync(file, 'utf8'));
    return lines.map((line) => `${what} ${file}, line ${line}: is not NAME=value, a comment or empty`);
  } catch (error) {
    return [describeUnreadable(what, file, error)];
  }
}

/** What was loaded so far, for what is to be said or done though it is incomplete. */
export function environmentAtHand(): Environment {
  return process.env;
}

/** The same, with `.env`: an incomplete one stops a gateway, and a token must be revoked all the same. */
export function loadWhatThereIs(): Promise<Environment> {
  return loadEnvironment().catch(environmentAtHand);
}

/** The settings of this process. @throws ConfigError */
export async function loadConfig(envFile?: string): Promise<{ config: Config; environment: Environment }> {
  const environment = await loadEnvironment(envFile);
  return { config: readConfig(environment), environment };
}
