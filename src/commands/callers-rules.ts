/** What a gateway with the settings of this process's environment would check a callers file against. */
import type { CallersFileRules } from '../callers/callers-file.ts';
import { isLocalHost, readSettings } from '../config/config.ts';
import { workspaceNames } from '../config/workspaces.ts';
import { operationsOf } from '../gateway/options.ts';
import { loadWhatThereIs } from './environment.ts';

/** The settings that the rules depend on. */
export const settingsOfRules = ['HOST', 'UPSTREAM_READS', 'FORWARD_REQUEST_HEADERS', 'WORKSPACES'] as const;

/**
 * The callers file that was given, or the one that the settings name.
 *
 * @param envFile `--env-file`: the rules come from it as well
 * @throws ConfigError naming what is wrong with that file
 */
export async function callersFileOf(given?: string, envFile?: string): Promise<string | undefined> {
  const environment = await loadWhatThereIs(envFile);
  return given ?? environment['CALLERS_FILE'];
}

/** @throws ConfigError where one of those settings is wrong; what else a gateway needs may be missing */
export async function callersFileRules(): Promise<CallersFileRules> {
  const environment = await loadWhatThereIs();
  const config = readSettings(environment, settingsOfRules);
  return {
    operations: new Set(operationsOf(config).map(({ name }) => name)),
    workspaces: workspaceNames(environment, config.WORKSPACES),
    loopbackOnly: isLocalHost(config.HOST),
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
  };
}
