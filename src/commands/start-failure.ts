/** Says plainly, on standard error, why nothing was started: names, never values. */
import { CallersFileError } from '../callers/callers-file.ts';
import { ConfigError } from '../config.ts';
import { CertificateError } from '../edge/certificate.ts';
import { ListenError } from '../edge/listen.ts';
import { KeyStoreError } from '../key/store.ts';
import { PackageError } from '../optional-package.ts';
import { environmentAtHand } from './environment.ts';
import { UnsafeProcessError } from './process-hardening.ts';

/** @returns the exit status: 2 where settings or what they name are wrong, 1 for anything else */
export async function reportStartFailure(error: unknown): Promise<number> {
  const lines = isCorrectable(error) ? await allProblems(error) : linesOf(error);
  process.stderr.write(`analytics-gateway cannot start:\n${lines.map((line) => `  ${line}\n`).join('')}`);
  return isCorrectable(error) ? 2 : 1;
}

/** What one failure says, with everything else that would end the next start. */
export async function allProblems(error: unknown): Promise<readonly string[]> {
  // To look for others would open the key.
  if (error instanceof UnsafeProcessError) return linesOf(error);
  const { findStartProblems } = await import('./start-problems.ts');
  return [...new Set([...linesOf(error), ...(await findStartProblems(environmentAtHand()))])];
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
