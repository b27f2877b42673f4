/** Composes what `check` needs of the gateway: the key's store, and the way to the upstream without the cache. */
import { type Config, ConfigError } from '../config.ts';
import { transportOptions } from '../gateway.ts';
import { openKeyring } from '../key/keyring.ts';
import { attachKey } from '../upstream/credential.ts';
import { sendUpstream } from '../upstream/transport.ts';
import { check } from './check.ts';
import { type Environment, loadConfig } from './environment.ts';
import { guardProcess } from './guard.ts';
import { reportRefusal } from './start-failure.ts';

/** @returns the exit status: 0 all is well, 1 key or upstream are not, 2 a setting is wrong */
export async function runCheck({ json }: { json: boolean }): Promise<number> {
  const write = (text: string): void => void process.stdout.write(text);
  try {
    const refused = await guardProcess();
    if (refused !== undefined) return reportRefusal(refused);
    const { config, environment } = await loadConfig();
    return await check({
      settingsProblems: [],
      baseUrl: config.UPSTREAM_BASE_URL.href,
      open: () => openParts(config, environment),
      timeoutMs: config.REQUEST_TIMEOUT,
      json,
      write,
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return check({
      settingsProblems: error.problems,
      baseUrl: '',
      open: () => Promise.reject(error),
      timeoutMs: 0,
      json,
      write,
    });
  }
}

async function openParts(config: Config, environment: Environment) {
  const keyring = await openKeyring({
    from: config.UPSTREAM_API_KEY_FROM,
    previousFrom: config.UPSTREAM_API_KEY_PREVIOUS_FROM,
    environment,
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: () => {},
  });
  const transport = sendUpstream(transportOptions(config));
  return { keyring, ask: attachKey({ keyring })(transport.handler), close: () => transport.close() };
}
