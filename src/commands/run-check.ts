/** Composes what `check` needs of the gateway: the key's store, and the way to the upstream without the cache. */
import { readCallersVersion } from '../callers/caller-store.ts';
import { CallersFileError } from '../callers/callers-file.ts';
import { guessableTokenProblems } from '../callers/weak-digest.ts';
import { type Config, ConfigError, unknownSettings } from '../config.ts';
import { CertificateError, readCertificate } from '../edge/certificate.ts';
import {
  authenticatorOptions,
  certificateFiles,
  fleetOptions,
  transportOptions,
} from '../gateway-options.ts';
import { Key } from '../key/key.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openKeyring } from '../key/keyring.ts';
import { openStore } from '../key/open-store.ts';
import type { Environment } from '../key/store.ts';
import { PackageError } from '../optional-package.ts';
import { attachKey, probeThrough } from '../upstream/credential.ts';
import { retryWithKey } from '../upstream/retry-with-key.ts';
import { sendUpstream } from '../upstream/transport.ts';
import { type CheckParts, check } from './check.ts';
import { loadConfig } from './environment.ts';
import { guardProcess } from './guard.ts';
import { allProblems, reportRefusal } from './start-failure.ts';

export interface RunCheckOptions {
  readonly json: boolean;
  /** `--env-file`. */
  readonly envFile?: string | undefined;
}

/** A store that is reached later than this is away for a gateway that starts. */
const storeTimeoutMs = 3_000;

/** @returns the exit status: 0 all is well, 1 key or upstream are not, 2 a setting is wrong */
export async function runCheck({ json, envFile }: RunCheckOptions): Promise<number> {
  const write = (text: string): void => void process.stdout.write(text);
  try {
    const refused = await guardProcess();
    if (refused !== undefined) {
      if (!json) return reportRefusal(refused);
      throw new ConfigError([refused]);
    }
    const { config, environment } = await loadConfig(envFile);
    // `serve` would refuse what these refuse.
    const certificate = certificateFiles(config);
    if (certificate !== undefined) await readCertificate(certificate);
    if (config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined) {
      await (await import('../tracing.ts')).loadOtel();
    }
    const { digestPaths } = readCallersVersion(authenticatorOptions(config));
    const guessable = guessableTokenProblems(digestPaths);
    if (guessable.length > 0) throw new CallersFileError(guessable);
    return await check({
      settingsProblems: [],
      warnings: unknownSettings(environment),
      baseUrl: config.UPSTREAM_BASE_URL.href,
      open: () => openParts(config, environment),
      timeoutMs: config.REQUEST_TIMEOUT,
      json,
      write,
    });
  } catch (error) {
    if (!isProblemOfSettings(error)) throw error;
    return check({
      settingsProblems: await allProblems(error),
      warnings: [],
      baseUrl: '',
      open: () => Promise.reject(error),
      timeoutMs: 0,
      json,
      write,
    });
  }
}

function isProblemOfSettings(error: unknown): boolean {
  return (
    error instanceof ConfigError ||
    error instanceof CallersFileError ||
    error instanceof CertificateError ||
    error instanceof PackageError
  );
}

async function openParts(config: Config, environment: Environment): Promise<CheckParts> {
  const { UPSTREAM_API_KEY_PREVIOUS_FROM: previousFrom } = config;
  const keyring = await openKeyring({
    from: config.UPSTREAM_API_KEY_FROM,
    previousFrom,
    environment,
    once: true,
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: () => {},
  });
  const transport = sendUpstream(transportOptions(config));
  const fleet = fleetOptions(config, environment);
  keyring.probeWith(probeThrough((next) => next, transport.handler));
  return {
    keyring,
    ask: retryWithKey(attachKey({ keyring })(transport.handler)),
    close: () => transport.close(),
    ...(fleet === undefined
      ? {}
      : { tryStore: async () => (await import('../fleet/try-store.ts')).tryStore(fleet, storeTimeoutMs) }),
    ...(previousFrom === undefined
      ? {}
      : { readPrevious: (signal) => readPrevious(previousFrom, environment, signal) }),
  };
}

async function readPrevious(from: string, environment: Environment, signal: AbortSignal) {
  const store = openStore(from, environment, 'UPSTREAM_API_KEY_PREVIOUS_FROM');
  const { fingerprint } = new Key(await loadKeyValue(store, signal), 0);
  return { source: store.describe, fingerprint };
}
