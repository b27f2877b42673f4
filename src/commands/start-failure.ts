/** Says plainly, on standard error, why nothing was started: names, never values. */
import { CallersFileError } from '../callers/callers-file.ts';
import { ConfigError } from '../config.ts';
import { ListenError } from '../edge/listen.ts';
import { KeyStoreError } from '../key/store.ts';

/** Says why nothing may start in this environment. @returns the exit status */
export function reportRefusal(reason: string): number {
  process.stderr.write(`analytics-gateway cannot start:\n  ${reason}\n`);
  return 2;
}

/** @returns the exit status: 2 where settings or what they name are wrong, 1 for anything else */
export function reportStartFailure(error: unknown): number {
  const lines = linesOf(error);
  process.stderr.write(`analytics-gateway cannot start:\n${lines.map((line) => `  ${line}\n`).join('')}`);
  return isSettings(error) ? 2 : 1;
}

function isSettings(error: unknown): boolean {
  if (error instanceof ListenError) return error.isSetting;
  return error instanceof ConfigError || error instanceof KeyStoreError || error instanceof CallersFileError;
}

function linesOf(error: unknown): readonly string[] {
  if (error instanceof ConfigError || error instanceof CallersFileError) return error.problems;
  return [error instanceof Error ? error.message : 'an unknown failure'];
}
