/** `check` as a command: finds out whether the settings are right, before anything is opened with them. */
import { readCallersVersion } from '../callers/caller-store.ts';
import type { CallerTable } from '../callers/caller-table.ts';
import { CallersFileError, inFile } from '../callers/callers-file.ts';
import { unnamedWritten } from '../callers/callers-file-policy.ts';
import { guessableTokenProblems } from '../callers/weak-digest.ts';
import { type Config, ConfigError, readConfig } from '../config/config.ts';
import { nearestOfAll } from '../config/spelling.ts';
import type { WorkspaceConfig } from '../config/workspaces.ts';
import { readCertificate } from '../edge/certificate.ts';
import { authenticatorOptions, certificateFiles, gateOptions } from '../gateway/options.ts';
import { openAdminToken } from '../key/admin-token.ts';
import type { Environment } from '../key/store.ts';
import { check, checkEach } from './check.ts';
import { environmentAtHand, loadEnvironment, settingsWithoutEffect } from './environment.ts';
import { hardenProcess, UnsafeProcessError } from './process-hardening.ts';
import { allProblems, isCorrectable, reportStartFailure } from './start-failure.ts';
import { socketProblems } from './start-problems.ts';

export interface CheckEnvironmentOptions {
  readonly json: boolean;
  /** `--workspace`: the only ones to try of several; `-` is the unnamed one. */
  readonly workspaces?: readonly string[] | undefined;
  /** Whether a person reads it. */
  readonly isTerminal?: boolean;
  /** Writes to standard output. */
  write(text: string): void;
}

export interface RunCheckOptions extends Omit<CheckEnvironmentOptions, 'write'> {
  /** `--env-file`. */
  readonly envFile?: string | undefined;
}

/** @returns the exit status: 0 all is well, 1 key or upstream are not, 2 a setting is wrong */
export async function runCheck({ envFile, ...asked }: RunCheckOptions): Promise<number> {
  const isTerminal = process.stdout.isTTY === true;
  const options = { ...asked, isTerminal, write: (text: string): void => void process.stdout.write(text) };
  try {
    await hardenProcess();
    return await checkEnvironment(await loadEnvironment(envFile), options);
  } catch (error) {
    if (error instanceof UnsafeProcessError && !options.json) return reportStartFailure(error);
    return sayWhatIsWrong(error, environmentAtHand(), options);
  }
}

/** The same for settings that are loaded already. */
export async function checkEnvironment(
  environment: Environment,
  options: CheckEnvironmentOptions,
): Promise<number> {
  const { json, workspaces, isTerminal = false, write } = options;
  try {
    const config = readConfig(environment);
    const { jwt } = await refuseWhatServeRefuses(config, environment);
    const checked = meant(config, workspaces).map((own, index) => ({
      name: own.name,
      settingsProblems: [],
      // Once for all of them, as the shared store and the company logins.
      warnings: index === 0 ? settingsWithoutEffect(environment) : [],
      baseUrl: own.baseUrl.href,
      addedReads: config.UPSTREAM_READS,
      toldLimits: gateOptions(config, own, config.UPSTREAM_CONNECTIONS).limits ?? [],
      limitFields: config.UPSTREAM_LIMIT_HEADERS,
      open: async () => {
        const { openParts } = await import('./check-parts.ts');
        return openParts(config, own, environment, jwt, index === 0);
      },
      timeoutMs: config.REQUEST_TIMEOUT,
      isTerminal,
    }));
    const [only, ...others] = checked;
    if (only !== undefined && others.length === 0) return await check({ ...only, json, write });
    return await checkEach(checked, { json, write });
  } catch (error) {
    return sayWhatIsWrong(error, environment, options);
  }
}

/** @returns the callers of the file */
async function refuseWhatServeRefuses(config: Config, environment: Environment): Promise<CallerTable> {
  const certificate = certificateFiles(config);
  if (certificate !== undefined) await readCertificate(certificate);
  await openAdminToken(config, environment)?.();
  const sockets = socketProblems(config);
  if (sockets.length > 0) throw new ConfigError(sockets);
  if (config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined) await (await import('../log/tracing.ts')).loadOtel();
  const { digestPaths, table } = readCallersVersion(
    authenticatorOptions(
      config,
      config.workspaces.map(({ name }) => name),
    ),
  );
  const guessable = guessableTokenProblems(digestPaths);
  if (guessable.length > 0) throw new CallersFileError(inFile(config.CALLERS_FILE ?? '', guessable));
  return table;
}

/** @throws what is no fault of the settings */
async function sayWhatIsWrong(
  error: unknown,
  environment: Environment,
  { json, write }: CheckEnvironmentOptions,
): Promise<number> {
  if (!isCorrectable(error)) throw error;
  const settingsProblems = await allProblems(error, environment);
  // Beside a wrong setting they stand among the problems.
  const warnings = settingsWithoutEffect(environment).filter((name) => !settingsProblems.includes(name));
  return check({
    ...{ settingsProblems, warnings },
    baseUrl: '',
    open: () => Promise.reject(error),
    timeoutMs: 0,
    json,
    write,
  });
}

/** The workspaces to try. @throws ConfigError where there is no such workspace */
function meant({ workspaces }: Config, written: readonly string[] | undefined): readonly WorkspaceConfig[] {
  if (written === undefined) return workspaces;
  const known = workspaces.map(({ name }) => name || unnamedWritten);
  const unknown = written.find((name) => !known.includes(name));
  if (unknown === undefined) return workspaces.filter((_one, at) => written.includes(known[at] ?? ''));
  throw new ConfigError([`--workspace names no workspace${nearestOfAll(unknown ?? '', known)}`]);
}
