/** `check` as a command: finds out whether the settings are right, and then opens what the check asks of a gateway. */
import { readCallersVersion } from '../callers/caller-store.ts';
import { callersFileRules, unnamedWritten } from '../callers/callers-file.ts';
import { callersOf } from '../callers/callers-snapshot.ts';
import { type Config, readConfig } from '../config/config.ts';
import { nearestOfAll } from '../config/names.ts';
import type { Environment } from '../config/values.ts';
import { keyPlaces, usedLimits, type WorkspaceConfig } from '../config/workspaces.ts';
import { SettingError } from '../errors.ts';
import { proxyFor } from '../exchange/proxy.ts';
import { importModule } from '../files/optional-package.ts';
import { storeOptions, transportOptions } from '../gateway/workspace.ts';
import { Key } from '../key/key.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openKeyring } from '../key/keyring.ts';
import { openStore } from '../key/open-store.ts';
import type { KeyStore } from '../key/store.ts';
import { operationsOf } from '../operations.ts';
import { attachKey, checkThrough, retryWithKey } from '../upstream/credential.ts';
import { SharedBudget } from '../upstream/shared-limits.ts';
import { sendUpstream } from '../upstream/transport.ts';
import { type CheckParts, check, checkEach } from './check.ts';
import type { LearnedLimit, LoginTrial } from './check-report.ts';
import {
  environmentAtHand,
  hardenProcess,
  loadEnvironment,
  settingsWithoutEffect,
  UnsafeProcessError,
} from './environment.ts';
import { askGateway } from './healthcheck.ts';
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
    baseUrl: own.baseUrl.href,
    proxy: proxyFor(config)?.describedFor(own.baseUrl),
    addedReads: config.UPSTREAM_READS,
    toldLimits: usedLimits(own, config.UPSTREAM_LIMIT_RESERVE),
    limitFields: config.UPSTREAM_LIMIT_HEADERS,
    linkedBase: config.PUBLIC_BASE_URL === undefined ? own.baseUrl : undefined,
    open: () => openChecked(config, own, environment, index === 0),
    timeoutMs: config.REQUEST_TIMEOUT,
    isTerminal,
  }));
  const [only, ...others] = checked;
  if (only !== undefined && others.length === 0) return await check({ ...only, json, write });
  return await checkEach(checked, { json, write });
}

function sayWhatIsWrong(
  settingsProblems: readonly string[],
  environment: Environment,
  { json, write }: CheckEnvironmentOptions,
): Promise<number> {
  // Beside a wrong setting they stand among the problems.
  const warnings = settingsWithoutEffect(environment).filter((name) => !settingsProblems.includes(name));
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

/** A store that is reached later than this is away for a gateway that starts. */
const storeTimeoutMs = 3_000;
/** A gateway on this machine answers sooner. */
const runningTimeoutMs = 1_000;

/**
 * Opens what the check of one workspace needs of a gateway: the key's store, and the way to the upstream below the cache,
 * the gate and the retries, which would wait where the check has to say what the upstream said. It joins no other
 * gateways: to look at the shared store is enough.
 *
 * @param isFirst this one tries what all workspaces have together: the shared store, the company logins
 * @throws KeyStoreError where the key's setting is wrong
 */
async function openChecked(
  config: Config,
  own: WorkspaceConfig,
  environment: Environment,
  isFirst: boolean,
): Promise<CheckParts> {
  const said: string[] = [];
  const open: typeof openStore = (place, all, setting) =>
    openStore(place, all, setting, importModule, (text) => void said.push(text));
  const places = keyPlaces(own);
  const { previousFrom, settings } = places;
  const transport = sendUpstream({
    ...transportOptions(config, own, config.UPSTREAM_CONNECTIONS),
    bodies: new SharedBudget(Number.POSITIVE_INFINITY, 0).join(),
  });
  const keyring = await openKeyring({
    ...places,
    environment,
    singleAttempt: true,
    open,
    check: checkThrough((next) => next, transport.handler),
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: () => {},
  });
  const store = isFirst ? storeOptions(config, environment) : undefined;
  return {
    keyring,
    ask: retryWithKey(attachKey(keyring)(transport.handler)),
    close: () => transport.close(),
    readLearned: () => readLearned(config, own),
    said: () => said.map((text) => keyring.scrub.redact(text)),
    ...(store === undefined
      ? {}
      : { tryStore: async () => (await import('../fleet/fleet.ts')).tryStore(store, storeTimeoutMs) }),
    ...(isFirst ? { tryLogins: () => tryLogins(config) } : {}),
    ...(previousFrom === undefined
      ? {}
      : {
          readPrevious: (signal) =>
            readPrevious(() => open(previousFrom, environment, settings.previousFrom), signal),
        }),
  };
}

/** What the gateway that runs with these settings has learned of the limit, by its own status. */
async function readLearned(config: Config, { name }: WorkspaceConfig): Promise<LearnedLimit> {
  const { ADMIN_HOST: host, ADMIN_PORT: port } = config;
  if (port === 'off' || port === 0) return { asked: null, problem: `ADMIN_PORT is ${port}` };
  const target = `/status?workspace=${encodeURIComponent(name)}`;
  const { asked, answer } = askGateway({ host, port, isTls: false }, target, runningTimeoutMs);
  try {
    const { gate } = JSON.parse((await answer).text) as { gate?: { attemptsPerSecond?: unknown } };
    const perSecond = gate?.attemptsPerSecond;
    if (typeof perSecond === 'number') return { asked, attemptsPerSecond: perSecond };
    if (perSecond === null) return { asked, attemptsPerSecond: null };
    return { asked, problem: 'what answers is no gateway with this workspace' };
  } catch {
    return { asked, problem: 'no gateway answers' };
  }
}

/** The key sets of all company logins, at once: what one of them does holds up no other. */
async function tryLogins(config: Config): Promise<readonly LoginTrial[]> {
  const names = config.workspaces.map(({ name }) => name);
  const rules = callersFileRules(config, operationsOf(config), names);
  const { jwt } = readCallersVersion({ ...rules, file: config.CALLERS_FILE }).table;
  if (jwt.length === 0) return [];
  // It brings the library for JWTs.
  const { countKeysAt, describeKeySetFailure } = await import('../callers/key-set.ts');
  return Promise.all(
    [...new Set(jwt.map(({ rule }) => rule.jwks))].map(async (address): Promise<LoginTrial> => {
      const login = { address, callers: callersOf(jwt, address) };
      try {
        const keys = await countKeysAt(address, proxyFor(config));
        if (keys > 0) return { ...login, ok: true, keys };
        return { ...login, ok: false, keys, problem: 'the key set has no key for signatures' };
      } catch (error) {
        return {
          ...login,
          ok: false,
          problem: `the keys cannot be fetched: ${describeKeySetFailure(error)}`,
        };
      }
    }),
  );
}

async function readPrevious(open: () => KeyStore, signal: AbortSignal) {
  const store = open();
  const { fingerprint } = new Key(await loadKeyValue(store, signal), 0);
  return { source: store.describe, fingerprint };
}
