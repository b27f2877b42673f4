/**
 * Opens what `check.ts` asks: stores, upstream, logins. Loaded once the settings are found right: it brings undici, which
 * takes half of a start.
 */
import { readCallersVersion } from '../callers/caller-store.ts';
import { callersFileRules } from '../callers/callers-file.ts';
import { callersTrusting } from '../callers/callers-snapshot.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { keyPlaces, type WorkspaceConfig } from '../config/workspaces.ts';
import { proxyFor } from '../exchange/proxy.ts';
import { importModule } from '../files/optional-package.ts';
import { storeOptions, transportOptions } from '../gateway/workspace.ts';
import { Key } from '../key/key.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openKeyring } from '../key/keyring.ts';
import { openStore } from '../key/open-store.ts';
import type { KeyStore } from '../key/store.ts';
import { operationsOf } from '../operations.ts';
import { SharedBudget } from '../upstream/budgets.ts';
import { attachKey, checkThrough, retryWithKey } from '../upstream/credential.ts';
import { sendUpstream } from '../upstream/transport.ts';
import type { CheckParts } from './check.ts';
import type { LearnedLimit, LoginTrial } from './check-report.ts';
import { askGateway } from './healthcheck.ts';

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
export async function openChecked(
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
      const login = { address, callers: callersTrusting(jwt, address) };
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
