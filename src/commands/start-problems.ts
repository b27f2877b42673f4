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
import { ListenError, socketProblem } from '../edge/listen.ts';
import { SettingError } from '../errors.ts';
import { proxyFor } from '../exchange/proxy.ts';
import { loadKeyValue, openAdminToken } from '../key/key-source.ts';
import { openStore } from '../key/open-store.ts';
import { visible } from '../log/text-lines.ts';
import { operationsOf } from '../operations.ts';
import { environmentAtHand, settingsWithoutEffect, UnsafeProcessError } from './environment.ts';

/** Names of settings, and what is wrong with what they name; never a value. */
export interface StartProblems {
  /** Those of the settings come first. */
  readonly all: readonly string[];
  /** Only keys are missing: each workspace can be told of its own. */
  readonly areOfKeysAlone: boolean;
}

export async function findStartProblems(environment: Environment): Promise<StartProblems> {
  const { config, problems } = tryConfig(environment);
  const ofSettings =
    problems.length > 0 ? [...problems, ...settingsWithoutEffect(environment, problems)] : [];
  const ofKeys = await keyProblems(config, environment);
  const ofOthers = [
    ...(await problemsOf(() => openAdminToken(config, environment)?.())),
    ...socketProblems(config),
    ...(await problemsOf(() => proxyFor(config)?.authorization())),
    ...(await problemsOf(() => readCallers(config, environment))),
    ...(await problemsOf(() => {
      const files = certificateFiles(config);
      return files && readCertificate(files);
    })),
    ...(await problemsOf(() => loadTracing(config))),
    ...(await problemsOf(() => readPatch(config))),
  ];
  return {
    all: [...ofSettings, ...ofKeys, ...ofOthers],
    areOfKeysAlone: ofSettings.length + ofOthers.length === 0,
  };
}

async function readPatch({ OPENAPI_PATCH_FILE: file, UPSTREAM_READS }: Partial<Config>): Promise<void> {
  if (file === undefined || UPSTREAM_READS === undefined) return;
  const { readOpenApiPatch } = await import('../documents/openapi-patch.ts');
  readOpenApiPatch(file, operationsOf({ UPSTREAM_READS }));
}

/** Only where spans are exported. */
async function loadTracing(config: Partial<Config>): Promise<void> {
  if (!(config.OTEL_EXPORTER_OTLP_ENDPOINT ?? config.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)) return;
  const { loadOtel } = await import('../log/tracing.ts');
  await loadOtel(config);
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

/**
 * Says plainly, on standard error, why nothing was started.
 *
 * @returns the exit status: 2 where settings or what they name are wrong, 1 for anything else
 */
export async function reportStartFailure(error: unknown): Promise<number> {
  const { status, text } = await describeStartFailure(error, environmentAtHand());
  process.stderr.write(text);
  return status;
}

/** What `reportStartFailure` writes and returns, for a gateway with these settings. */
export async function describeStartFailure(
  error: unknown,
  environment: Environment,
): Promise<{ readonly status: 1 | 2; readonly text: string }> {
  const isTheirs = isCorrectable(error);
  const lines = isTheirs
    ? await allProblems(error, environment)
    : [error instanceof Error ? error.message : 'an unknown failure'];
  const text = `analytics-gateway cannot start:\n${lines.map((line) => `  ${visible(line)}\n`).join('')}`;
  return { status: isTheirs ? 2 : 1, text };
}

/** What one failure says, with everything else that would end the next start. */
export async function allProblems(error: SettingError, environment: Environment): Promise<readonly string[]> {
  // To look for others would open the key.
  if (error instanceof UnsafeProcessError) return error.problems;
  return [...new Set([...error.problems, ...(await findStartProblems(environment)).all])];
}

/** Whether settings, or what they name, are wrong, rather than the machine busy. */
function isCorrectable(error: unknown): error is SettingError {
  return error instanceof SettingError && !(error instanceof ListenError && !error.isSetting);
}
