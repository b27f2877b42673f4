/** The one place that reads the process's environment, `.env` included, and turns it into settings. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Config, ConfigError, readConfig } from '../config.ts';
import type { Environment } from '../key/store.ts';

/**
 * The environment, with what `.env` in the working directory adds, where there is one. What is set already wins.
 *
 * @throws ConfigError naming what `.env.example` requires and nothing sets
 */
export async function loadEnvironment(): Promise<Environment> {
  if (existsSync('.env')) {
    // Only for development, so production does not pay for loading it.
    const { default: dotenv } = await import('dotenv-safe');
    // Ours, wherever we run: another project's `.env.example` beside its `.env` says nothing about us.
    const example = fileURLToPath(new URL('../../.env.example', import.meta.url));
    try {
      // Without `quiet` it prints a banner among the log's lines.
      dotenv.config({ example, quiet: true });
    } catch (error) {
      // Its types name the error's class, but only as a type.
      const { missing } = error as { missing?: readonly string[] };
      if (missing === undefined) throw error;
      throw new ConfigError(missing.map((name) => `${name} is required`));
    }
  }
  return process.env;
}

/** The settings of this process. @throws ConfigError */
export async function loadConfig(): Promise<{ config: Config; environment: Environment }> {
  const environment = await loadEnvironment();
  return { config: readConfig(environment), environment };
}
