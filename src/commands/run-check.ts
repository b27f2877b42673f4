/**
 * The command `check`: reads the settings, and has `check.ts` try each workspace that is asked for, with parts that are
 * opened here: stores, upstream, logins.
 */
import { readFileSync } from 'node:fs';
import { readCallersVersion } from '../callers/caller-store.ts';
import { callersFileRules, unnamedWritten } from '../callers/callers-file.ts';
import { callersOf } from '../callers/callers-snapshot.ts';
import { listCallers } from '../callers/callers-text.ts';
import { type Config, readConfig } from '../config/config.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import type { Environment } from '../config/values.ts';
import { keyPlaces, usedLimits, type WorkspaceConfig } from '../config/workspaces.ts';
import { SettingError } from '../errors.ts';
import { proxyFor } from '../exchange/proxy.ts';
import { importModule } from '../files/optional-package.ts';
import { storeOptions, transportOptions } from '../gateway/workspace.ts';
import { passedSocket } from '../http/address.ts';
import { Key } from '../key/key.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openKeyring } from '../key/keyring.ts';
import { openStore } from '../key/open-store.ts';
import type { KeyStore } from '../key/store.ts';
import { operationsOf } from '../operations.ts';
import { SharedBudget } from '../upstream/budgets.ts';
import { attachKey, checkThrough, retryWithKey } from '../upstream/credential.ts';
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
    notices: index === 0 ? [...untriedSockets(config), ...unenforcedRules(config)] : [],
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
  const { ADMIN_HOST: host, ADMIN_PORT: port, workspaces } = config;
  if (port === 'off' || port === 0) return { asked: null, problem: `ADMIN_PORT is ${port}` };
  const query = name === '' && workspaces.length === 1 ? '' : `?workspace=${encodeURIComponent(name)}`;
  const target = `/status${query}`;
  const { asked, answer } = askGateway({ host, port, isTls: false }, target, runningTimeoutMs);
  const where = asked.startsWith('http') ? new URL(asked).host : host;
  try {
    const { gate } = JSON.parse((await answer).text) as { gate?: { attemptsPerSecond?: unknown } };
    const perSecond = gate?.attemptsPerSecond;
    if (typeof perSecond === 'number') return { asked, attemptsPerSecond: perSecond };
    if (perSecond === null) return { asked, attemptsPerSecond: null };
    return { asked, problem: `what answers at ${where} is no gateway with this workspace` };
  } catch {
    return { asked, problem: `no gateway runs at ${where}` };
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
