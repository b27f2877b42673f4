/**
 * Finds everything that keeps a gateway from starting, so that it takes one round to put right: settings, keys, token,
 * sockets, callers file, certificate and OpenTelemetry. `check` looks before it asks the upstream, `serve` once a start
 * has failed.
 */
import { readCallersVersion } from '../callers/caller-store.ts';
import { callersFileRules } from '../callers/callers-file.ts';
import { type Config, ConfigError, readConfig } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { keyPlaces, workspaceNames } from '../config/workspaces.ts';
import { certificateFiles, readCertificate } from '../edge/certificate.ts';
import { socketProblem } from '../edge/listen.ts';
import { SettingError } from '../errors.ts';
import { openAdminToken } from '../key/admin-token.ts';
import { loadKeyValue } from '../key/key-source.ts';
import { openStore } from '../key/open-store.ts';
import { loadOtel } from '../log/tracing.ts';
import { operationsOf } from '../operations.ts';
import { settingsWithoutEffect } from './environment.ts';

/** Names of settings, and what is wrong with what they name; never a value. */
export interface StartProblems {
  /** Those of the settings come first. */
  readonly all: readonly string[];
  /** Only keys are missing: each workspace can be told of its own. */
  readonly areOfKeysAlone: boolean;
}

export async function findStartProblems(environment: Environment): Promise<StartProblems> {
  const { config, problems } = tryConfig(environment);
  const ofSettings = problems.length > 0 ? [...problems, ...settingsWithoutEffect(environment)] : [];
  const ofKeys = await keyProblems(config, environment);
  const ofOthers = [
    ...(await problemsOf(() => openAdminToken(config, environment)?.())),
    ...socketProblems(config),
    ...(await problemsOf(() => readCallers(config, environment))),
    ...(await problemsOf(() => {
      const files = certificateFiles(config);
      return files && readCertificate(files);
    })),
    ...(await problemsOf(() => config.OTEL_EXPORTER_OTLP_ENDPOINT && loadOtel())),
  ];
  return {
    all: [...ofSettings, ...ofKeys, ...ofOthers],
    areOfKeysAlone: ofSettings.length + ofOthers.length === 0,
  };
}

function tryConfig(environment: Environment): { config: Partial<Config>; problems: readonly string[] } {
  try {
    return { config: readConfig(environment), problems: [] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { config: error.readable, problems: error.problems };
  }
}

async function problemsOf(open: () => unknown): Promise<readonly string[]> {
  try {
    await open();
    return [];
  } catch (error) {
    if (error instanceof SettingError) return error.problems;
    throw error;
  }
}

/** Of the stores on this machine: others may take a while, and are waited for by a gateway that runs. */
async function keyProblems(config: Partial<Config>, environment: Environment): Promise<readonly string[]> {
  const problems: string[] = [];
  for (const workspace of config.workspaces ?? []) {
    const { from, previousFrom, settings } = keyPlaces(workspace);
    const ofKey = await problemsOf(() => {
      const store = openStore(from, environment, settings.from);
      return store.local ? loadKeyValue(store) : undefined;
    });
    const ofPrevious = await problemsOf(
      () => previousFrom && openStore(previousFrom, environment, settings.previousFrom),
    );
    problems.push(...ofKey, ...ofPrevious);
  }
  return problems;
}

/** Without listening: what the folder of a socket says. */
function socketProblems({ HOST, ADMIN_HOST, ADMIN_PORT }: Partial<Config>): readonly string[] {
  const hosts = { HOST, ADMIN_HOST: ADMIN_PORT === 'off' ? undefined : ADMIN_HOST };
  return Object.entries(hosts).flatMap(([setting, host]) => {
    const problem = host === undefined ? undefined : socketProblem(host, setting);
    return problem ?? [];
  });
}

function readCallers(config: Partial<Config>, environment: Environment): void {
  const { HOST, UPSTREAM_READS, FORWARD_REQUEST_HEADERS, CALLERS_FILE: file, WORKSPACES } = config;
  // What these say decides what is right in the file.
  if (HOST === undefined || UPSTREAM_READS === undefined || FORWARD_REQUEST_HEADERS === undefined) return;
  if (file === undefined || WORKSPACES === undefined) return;
  const workspaces = workspaceNames(environment, WORKSPACES);
  const rules = { HOST, FORWARD_REQUEST_HEADERS };
  readCallersVersion({ ...callersFileRules(rules, operationsOf({ UPSTREAM_READS }), workspaces), file });
}
