/** What a gateway with the settings of this process's environment would check a callers file against. */
import type { CallersFileRules } from '../callers/callers-file-policy.ts';
import { isLocalListener, readConfig } from '../config.ts';
import type { Environment } from '../key/store.ts';
import { configuredOperations, specifiedOperations } from '../operations.ts';
import { loadEnvironment } from './environment.ts';

/** The settings that the rules depend on. */
export const settingsOfRules = ['HOST', 'UPSTREAM_READS', 'FORWARD_REQUEST_HEADERS'] as const;

/** An incomplete `.env` stops a gateway; a token must be revoked all the same. */
function environmentAtHand(): Promise<Environment> {
  return loadEnvironment().catch(() => process.env);
}

/** The callers file that was given, or the one that the environment or `.env` names. */
export async function callersFileOf(given: string | undefined): Promise<string | undefined> {
  return given ?? (await environmentAtHand())['CALLERS_FILE'];
}

/** @throws ConfigError where one of those settings is wrong; what else a gateway needs may be missing */
export async function callersFileRules(): Promise<CallersFileRules> {
  const environment = await environmentAtHand();
  const config = readConfig({
    UPSTREAM_BASE_URL: 'http://localhost',
    CALLERS_FILE: 'the one at hand',
    ...Object.fromEntries(settingsOfRules.map((name) => [name, environment[name]])),
  });
  const operations = [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
  return {
    operations: new Set(operations.map(({ name }) => name)),
    loopbackOnly: isLocalListener(config),
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
  };
}
