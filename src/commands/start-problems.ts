/**
 * Everything that keeps the gateway from starting: settings, keys, token, sockets, callers file, certificate and OpenTelemetry, so that it takes one round
 * to put them right. Looked for only when a start has failed.
 */

import { readCallersVersion } from '../callers/caller-store.ts';
import { CallersFileError } from '../callers/callers-file.ts';
import { type Config, ConfigError, readConfig } from '../config/config.ts';
import { variableOf, workspaceNames } from '../config/workspaces.ts';
import { CertificateError, readCertificate } from '../edge/certificate.ts';
import { socketProblem } from '../edge/listen.ts';
import { PackageError } from '../files/optional-package.ts';
import { authenticatorOptions, certificateFiles } from '../gateway/options.ts';
import { loadKeyValue, openAdminToken } from '../key/key-source.ts';
import { openStore } from '../key/open-store.ts';
import { type Environment, KeyStoreError } from '../key/store.ts';
import { loadOtel } from '../log/tracing.ts';
import { settingsWithoutEffect } from './environment.ts';

/** Names of settings, and what is wrong with what they name; never a value. The first are those of the settings. */
export async function findStartProblems(environment: Environment): Promise<readonly string[]> {
  const { config, problems } = tryConfig(environment);
  return [
    ...problems,
    ...(problems.length > 0 ? settingsWithoutEffect(environment) : []),
    ...(await keyProblems(config, environment)),
    ...(await adminTokenProblems(config, environment)),
    ...socketProblems(config),
    ...callersProblems(config, environment),
    ...(await certificateProblems(config)),
    ...(await tracingProblems(config)),
  ];
}

function tryConfig(environment: Environment): { config: Partial<Config>; problems: readonly string[] } {
  try {
    return { config: readConfig(environment), problems: [] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { config: error.readable, problems: error.problems };
  }
}

/** Of the stores on this machine: others may take a while, and are waited for by a gateway that runs. */
async function keyProblems(config: Partial<Config>, environment: Environment): Promise<string[]> {
  const { workspaces = [] } = config;
  const places = workspaces.flatMap(({ name, keyFrom, previousKeyFrom }) => [
    { setting: variableOf('UPSTREAM_API_KEY_FROM', name), from: keyFrom, isNeeded: true },
    {
      setting: variableOf('UPSTREAM_API_KEY_PREVIOUS_FROM', name),
      from: previousKeyFrom,
      isNeeded: false,
    },
  ]);
  const problems: string[] = [];
  for (const { setting, from, isNeeded } of places) {
    if (from === undefined) continue;
    try {
      const store = openStore(from, environment, setting);
      if (store.local && isNeeded) await loadKeyValue(store);
    } catch (error) {
      if (!(error instanceof KeyStoreError)) throw error;
      problems.push(error.message);
    }
  }
  return problems;
}

async function adminTokenProblems(config: Partial<Config>, environment: Environment): Promise<string[]> {
  try {
    await openAdminToken(config, environment)?.();
    return [];
  } catch (error) {
    if (error instanceof KeyStoreError) return [error.message];
    throw error;
  }
}

/** Without listening: what the folder of a socket says. */
export function socketProblems({ HOST, ADMIN_HOST, ADMIN_PORT }: Partial<Config>): readonly string[] {
  const hosts = { HOST, ADMIN_HOST: ADMIN_PORT === 'off' ? undefined : ADMIN_HOST };
  return Object.entries(hosts).flatMap(([setting, host]) => {
    const problem = host === undefined ? undefined : socketProblem(host, setting);
    return problem ?? [];
  });
}

function callersProblems(config: Partial<Config>, environment: Environment): readonly string[] {
  const { HOST, UPSTREAM_READS, FORWARD_REQUEST_HEADERS, CALLERS_FILE, WORKSPACES } = config;
  if (CALLERS_FILE === undefined) return [];
  // What these say decides what is right in the file.
  if (HOST === undefined || UPSTREAM_READS === undefined || FORWARD_REQUEST_HEADERS === undefined) return [];
  if (WORKSPACES === undefined) return [];
  try {
    const names = workspaceNames(environment, WORKSPACES);
    const rules = { HOST, UPSTREAM_READS, FORWARD_REQUEST_HEADERS, CALLERS_FILE };
    readCallersVersion(authenticatorOptions({ CALLER_FAILURES_PER_MINUTE: 0, ...rules }, names));
    return [];
  } catch (error) {
    if (error instanceof CallersFileError) return error.problems;
    throw error;
  }
}

async function certificateProblems(config: Partial<Config>): Promise<readonly string[]> {
  const files = certificateFiles(config);
  if (files === undefined) return [];
  try {
    await readCertificate(files);
    return [];
  } catch (error) {
    if (error instanceof CertificateError) return error.problems;
    throw error;
  }
}

async function tracingProblems(config: Partial<Config>): Promise<readonly string[]> {
  if (config.OTEL_EXPORTER_OTLP_ENDPOINT === undefined) return [];
  try {
    await loadOtel();
    return [];
  } catch (error) {
    if (error instanceof PackageError) return [error.message];
    throw error;
  }
}
