/** The one place that reads the process's environment, `.env` included, and turns it into settings. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Config, ConfigError, readConfig } from '../config.ts';
import type { Environment } from '../key/store.ts';

/**
 * The environment, with what a file adds: the one given, or `.env` in the working directory, where there is one. What
 * is set already wins.
 *
 * @throws ConfigError naming what `.env.example` requires and nothing sets, or a given file that is not there
 */
async function loadEnvironment(envFile?: string): Promise<Environment> {
  if (envFile !== undefined && !existsSync(envFile)) {
    throw new ConfigError([`--env-file names ${envFile}, which does not exist`]);
  }
  if (envFile !== undefined || existsSync('.env')) {
    // Only for development, so production does not pay for loading it.
    const { default: dotenv } = await import('dotenv-safe');
    // Ours, wherever we run: another project's `.env.example` beside its `.env` says nothing about us.
    const example = fileURLToPath(new URL('../../.env.example', import.meta.url));
    try {
      // Without `quiet` it prints a banner among the log's lines.
      dotenv.config({ example, quiet: true, ...(envFile === undefined ? {} : { path: envFile }) });
    } catch (error) {
      // Its types name the error's class, but only as a type.
      const { missing } = error as { missing?: readonly string[] };
      if (missing === undefined) throw error;
      throw new ConfigError(missing.map((name) => `${name} is required`));
    }
  }
  return process.env;
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
