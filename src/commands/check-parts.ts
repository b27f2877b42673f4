/** Composes what `check` needs of the gateway: the key's store, and the way to the upstream without the cache. */
import { callersOf } from '../callers/callers-snapshot.ts';
import type { JwtRules } from '../callers/jwt.ts';
import { describeKeySetFailure } from '../callers/key-set-fetch.ts';
import type { Config } from '../config/config.ts';
import { variableOf, type WorkspaceConfig } from '../config/workspaces.ts';
import { importModule } from '../files/optional-package.ts';
import { fleetOptions, transportOptions } from '../gateway/options.ts';
import { Key } from '../key/key.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openKeyring } from '../key/keyring.ts';
import { openStore } from '../key/open-store.ts';
import type { Environment, KeyStore } from '../key/store.ts';
import { attachKey, checkThrough, retryWithKey } from '../upstream/credential.ts';
import { SharedBudget } from '../upstream/shared-limits.ts';
import { sendUpstream } from '../upstream/transport.ts';
import type { CheckParts } from './check.ts';
import type { LoginTrial } from './check-report.ts';

/** A store that is reached later than this is away for a gateway that starts. */
const storeTimeoutMs = 3_000;

/**
 * Opens them for one workspace. The check loads this file once the settings are found right.
 *
 * @param rules the company logins of the callers file
 * @param isFirst this one tries what all workspaces have together: the shared store, the company logins
 * @throws KeyStoreError where the key's setting is wrong
 */
export async function openParts(
  config: Config,
  own: WorkspaceConfig,
  environment: Environment,
  rules: JwtRules,
  isFirst: boolean,
): Promise<CheckParts> {
  const said: string[] = [];
  const open: typeof openStore = (place, all, setting) =>
    openStore(place, all, setting, importModule, (text) => void said.push(text));
  const { name, keyFrom: from, previousKeyFrom: previousFrom } = own;
  const settings = {
    from: variableOf('UPSTREAM_API_KEY_FROM', name),
    previousFrom: variableOf('UPSTREAM_API_KEY_PREVIOUS_FROM', name),
  };
  const transport = sendUpstream({
    ...transportOptions(config, own, config.UPSTREAM_CONNECTIONS),
    bodies: new SharedBudget(Number.POSITIVE_INFINITY, 0).join(),
  });
  const keyring = await openKeyring({
    ...{ from, previousFrom, settings, environment },
    ...{ singleAttempt: true, open },
    check: checkThrough((next) => next, transport.handler),
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: () => {},
  });
  const fleet = isFirst ? fleetOptions(config, own, environment) : undefined;
  return {
    keyring,
    ask: retryWithKey(attachKey(keyring)(transport.handler)),
    close: () => transport.close(),
    said: () => said.map((text) => keyring.scrub.redact(text)),
    ...(fleet === undefined
      ? {}
      : { tryStore: async () => (await import('../fleet/try-store.ts')).tryStore(fleet, storeTimeoutMs) }),
    ...(isFirst ? { tryLogins: () => tryLogins(rules) } : {}),
    ...(previousFrom === undefined
      ? {}
      : {
          readPrevious: (signal) =>
            readPrevious(() => open(previousFrom, environment, settings.previousFrom), signal),
        }),
  };
}

/** The key sets of all company logins, at once: what one of them does holds up no other. */
async function tryLogins(rules: JwtRules): Promise<readonly LoginTrial[]> {
  if (rules.length === 0) return [];
  // It brings the library for JWTs.
  const { countKeysAt } = await import('../callers/key-set.ts');
  return Promise.all(
    [...new Set(rules.map(({ rule }) => rule.jwks))].map(async (address): Promise<LoginTrial> => {
      const login = { address, callers: callersOf(rules, address) };
      try {
        const keys = await countKeysAt(address);
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
