/** Says plainly, on standard error, why nothing was started: names, never values. */
import { CallersFileError } from '../callers/callers-file.ts';
import { ConfigError } from '../config/config.ts';
import { CertificateError } from '../edge/certificate.ts';
import { ListenError } from '../edge/listen.ts';
import { PackageError } from '../files/optional-package.ts';
import { type Environment, KeyStoreError } from '../key/store.ts';
import { visible } from '../log/text-lines.ts';
import { environmentAtHand } from './environment.ts';
import { UnsafeProcessError } from './process-hardening.ts';

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
  const lines = isTheirs ? await allProblems(error, environment) : linesOf(error);
  const text = `analytics-gateway cannot start:\n${lines.map((line) => `  ${visible(line)}\n`).join('')}`;
  return { status: isTheirs ? 2 : 1, text };
}

/** What one failure says, with everything else that would end the next start. */
export async function allProblems(error: unknown, environment: Environment): Promise<readonly string[]> {
  // To look for others would open the key.
  if (error instanceof UnsafeProcessError) return linesOf(error);
  const { findStartProblems } = await import('./start-problems.ts');
  return [...new Set([...linesOf(error), ...(await findStartProblems(environment))])];
}

/** Whether settings, or what they name, are wrong. */
export function isCorrectable(error: unknown): boolean {
  return (
    error instanceof CertificateError ||
    error instanceof ConfigError ||
    error instanceof KeyStoreError ||
    error instanceof CallersFileError ||
    error instanceof PackageError ||
    error instanceof UnsafeProcessError ||
    (error instanceof ListenError && error.isSetting)
  );
}

function linesOf(error: unknown): readonly string[] {
  if (
    error instanceof ConfigError ||
    error instanceof CallersFileError ||
    error instanceof CertificateError
  ) {
    return error.problems;
  }
  return [error instanceof Error ? error.message : 'an unknown failure'];
}
