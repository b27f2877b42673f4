/** Says plainly, on standard error, why nothing was started: names, never values. */
import type { Environment } from '../config/values.ts';
import { ListenError } from '../edge/listen.ts';
import { SettingError } from '../errors.ts';
import { visible } from '../log/text-lines.ts';
import { environmentAtHand, UnsafeProcessError } from './environment.ts';

/** @returns the exit status: 2 where settings or what they name are wrong, 1 for anything else */
export async function reportStartFailure(error: unknown): Promise<number> {
  const { status, text } = await describeStartFailure(error, environmentAtHand());
  process.stderr.write(text);
  return status;
}

/** What `reportStartFailure` writes and returns, for a gateway with these settings. */
export async function describeStartFailure(
  error: unknown,
  environment: Environment,
): Promise<{ readonly status: 1 | 2; readonly text: string }> {
  const isTheirs = isCorrectable(error);
  const lines = isTheirs
    ? await allProblems(error, environment)
    : [error instanceof Error ? error.message : 'an unknown failure'];
  const text = `analytics-gateway cannot start:\n${lines.map((line) => `  ${visible(line)}\n`).join('')}`;
  return { status: isTheirs ? 2 : 1, text };
}

/** What one failure says, with everything else that would end the next start. */
export async function allProblems(error: SettingError, environment: Environment): Promise<readonly string[]> {
  // To look for others would open the key.
  if (error instanceof UnsafeProcessError) return error.problems;
  const { findStartProblems } = await import('./start-problems.ts');
  return [...new Set([...error.problems, ...(await findStartProblems(environment)).all])];
}

/** Whether settings, or what they name, are wrong, rather than the machine busy. */
function isCorrectable(error: unknown): error is SettingError {
  return error instanceof SettingError && !(error instanceof ListenError && !error.isSetting);
}
