/** The command `check`: reads the settings, and has `check.ts` try each workspace that is asked for. */
import { readFileSync } from 'node:fs';
import { unnamedWritten } from '../callers/callers-file.ts';
import { listCallers } from '../callers/callers-text.ts';
import { type Config, readConfig } from '../config/config.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import type { Environment } from '../config/values.ts';
import { usedLimits, type WorkspaceConfig } from '../config/workspaces.ts';
import { SettingError } from '../errors.ts';
import { proxyFor } from '../exchange/proxy.ts';
import { passedSocket } from '../http/address.ts';
import { check, checkEach } from './check.ts';
import {
  environmentAtHand,
  hardenProcess,
  loadEnvironment,
  settingsWithoutEffect,
  UnsafeProcessError,
} from './environment.ts';
import { allProblems, findStartProblems, reportStartFailure } from './start-problems.ts';

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
    if (!(error instanceof SettingError)) throw error;
    if (error instanceof UnsafeProcessError && !options.json) return reportStartFailure(error);
    const environment = environmentAtHand();
    return sayWhatIsWrong(await allProblems(error, environment), environment, options);
  }
}

/** The same for settings that are loaded already. */
export async function checkEnvironment(
  environment: Environment,
  options: CheckEnvironmentOptions,
): Promise<number> {
  const { json, isTerminal = false, write } = options;
  const found = await findStartProblems(environment);
  // A workspace without a key is told of beside those that have one.
  if (found.all.length > 0 && !found.areOfKeysAlone) return sayWhatIsWrong(found.all, environment, options);
  const config = readConfig(environment);
  const unknown = unknownWorkspace(config, options.workspaces);
  if (unknown !== undefined) return sayWhatIsWrong([unknown], environment, options);
  const checked = askedFor(config, options.workspaces).map((own, index) => ({
    name: own.name,
    settingsProblems: [],
    // Once for all of them, as the shared store and the company logins.
    warnings: index === 0 ? settingsWithoutEffect(environment) : [],
    notices: index === 0 ? [...untriedSockets(config), ...unenforcedRules(config)] : [],
    baseUrl: own.baseUrl.href,
    proxy: proxyFor(config)?.describedFor(own.baseUrl),
    addedReads: config.UPSTREAM_READS,
    toldLimits: usedLimits(own, config.UPSTREAM_LIMIT_RESERVE),
    limitFields: config.UPSTREAM_LIMIT_HEADERS,
    linkedBase: config.PUBLIC_BASE_URL === undefined ? own.baseUrl : undefined,
    open: async () => {
      // It brings what asks the upstream.
      const { openChecked } = await import('./check-parts.ts');
      return openChecked(config, own, environment, index === 0);
    },
    timeoutMs: config.REQUEST_TIMEOUT,
    isTerminal,
  }));
  const [only, ...others] = checked;
  if (only !== undefined && others.length === 0) return await check({ ...only, json, write });
  return await checkEach(checked, { json, write });
}

/** Sockets that a supervisor passes to the gateway, and not to `check`. */
function untriedSockets({ HOST, ADMIN_HOST, ADMIN_PORT }: Config): readonly string[] {
  return Object.entries({ HOST, ...(ADMIN_PORT === 'off' ? {} : { ADMIN_HOST }) })
    .filter(([, host]) => passedSocket(host) !== undefined)
    .map(
      ([name, host]) => `${name}=${host} was not tried: a supervisor passes this socket to the gateway alone`,
    );
}

/** Callers whose limits and grants are only tried (`"enforce": false`). */
function unenforcedRules({ CALLERS_FILE }: Config): readonly string[] {
  const callers = CALLERS_FILE === undefined ? [] : listCallers(readFileSync(CALLERS_FILE, 'utf8'));
  const names = callers.filter(({ enforce }) => !enforce).map(({ name }) => name);
  if (names.length === 0) return [];
  return [
    `limits and grants of ${names.join(', ')} are not enforced ("enforce": false): what they refuse passes`,
  ];
}

function sayWhatIsWrong(
  settingsProblems: readonly string[],
  environment: Environment,
  { json, write }: CheckEnvironmentOptions,
): Promise<number> {
  // Beside a wrong setting they stand among the problems.
  const warnings = settingsWithoutEffect(environment, settingsProblems);
  const open = (): never => {
    throw new Error('wrong settings open nothing');
  };
  return check({ settingsProblems, warnings, baseUrl: '', open, timeoutMs: 0, json, write });
}

/** What is wrong with `--workspace`; `undefined` where each of them exists. */
function unknownWorkspace({ workspaces }: Config, written: readonly string[] = []): string | undefined {
  const known = workspaces.map(({ name }) => name || unnamedWritten);
  const unknown = written.find((name) => !known.includes(name));
  return unknown === undefined ? undefined : `--workspace names no workspace${nearestOfAll(unknown, known)}`;
}

/** The workspaces to try: those of `--workspace`, else all. */
function askedFor(
  { workspaces }: Config,
  written: readonly string[] | undefined,
): readonly WorkspaceConfig[] {
  return workspaces.filter(({ name }) => written?.includes(name || unnamedWritten) ?? true);
}
