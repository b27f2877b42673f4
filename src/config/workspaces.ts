/**
 * The settings of each workspace: `UPSTREAM_API_KEY_FROM_EMEA` is that of the workspace `emea`. Pure, as `config/config.ts`: the
 * environment comes in, and all problems come out at once, by name and never with a value.
 */

import type { AttemptLimit } from '../http/limit-fields.ts';
import { attemptLimits, baseUrl, ConfigValueError, type Environment, type Reader, text } from './values.ts';

/** One workspace of the upstream, with the key that belongs to it. */
export interface WorkspaceConfig {
  /** Empty for the unnamed workspace. */
  readonly name: string;
  readonly baseUrl: URL;
  readonly keyFrom: string;
  readonly previousKeyFrom: string | undefined;
  /** What the operator tells of its upstream's limit; empty where nothing is told. */
  readonly limits: readonly AttemptLimit[];
}

/** What a workspace's own setting says. Its variable is the row's name, `_`, and the workspace's name in capitals. */
export const workspaceSettings = {
  UPSTREAM_API_KEY_FROM: {
    required: true,
    meaning: 'Where the key of the workspace <NAME> comes from; written like UPSTREAM_API_KEY_FROM.',
  },
  UPSTREAM_API_KEY_PREVIOUS_FROM: {
    required: false,
    meaning: 'Its second key, to fall back to; written like UPSTREAM_API_KEY_FROM.',
  },
  UPSTREAM_BASE_URL: {
    required: false,
    meaning: 'Its base address, where that is not UPSTREAM_BASE_URL.',
  },
  UPSTREAM_LIMIT: {
    required: false,
    meaning: 'Its upstream’s limit, where that is not UPSTREAM_LIMIT.',
  },
} as const;

type WorkspaceSetting = keyof typeof workspaceSettings;
const rows = Object.keys(workspaceSettings) as WorkspaceSetting[];
const ownVariable = new RegExp(`^(?:${rows.join('|')})_(.*)$`);

/** A name that fits a URL, a variable's name and a metric's label. */
function isWorkspaceName(text: string): boolean {
  return /^[a-z0-9][a-z0-9-]{0,31}$/.test(text);
}

export const workspaceName: Reader<string> = (value) => {
  if (!isWorkspaceName(value)) {
    throw new ConfigValueError(
      'expects names of 1 to 32 lower-case letters, digits and hyphens, beginning with a letter or digit',
    );
  }
  // UPSTREAM_LIMIT_HEADERS is a setting of its own.
  if (value === 'headers' || value === 'reserve') {
    throw new ConfigValueError(`must not name ${value}: UPSTREAM_LIMIT_${value.toUpperCase()} is a setting`);
  }
  return value;
};

/** The variable of a workspace's own setting; for the unnamed workspace the setting itself. */
export function variableOf(setting: WorkspaceSetting, workspace: string): string {
  return workspace === '' ? setting : `${setting}_${workspace.toUpperCase().replaceAll('-', '_')}`;
}

/** The variables of all these workspaces. */
export function workspaceVariables(names: readonly string[]): string[] {
  return names.flatMap((name) => rows.map((setting) => variableOf(setting, name)));
}

/** The workspaces that the environment lists, as far as the list can be read. */
export function listedWorkspaces(environment: Environment): readonly string[] {
  return (environment['WORKSPACES'] ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}

/** The settings that workspaces share. Those that could not be read are `undefined`. */
export interface CommonSettings {
  readonly WORKSPACES: readonly string[] | undefined;
  readonly UPSTREAM_BASE_URL: URL | undefined;
  readonly UPSTREAM_API_KEY_FROM: string | undefined;
  readonly UPSTREAM_API_KEY_PREVIOUS_FROM: string | undefined;
  readonly UPSTREAM_LIMIT: readonly AttemptLimit[] | undefined;
}

/**
 * Reads what each workspace has of its own. The unnamed one comes first; it exists where none is named, or where a key
 * is set for it. Of a list with a wrong name the good ones are read.
 *
 * @returns the workspaces whose key could be read, each with what could not be read left `undefined`; and every problem
 */
export function readWorkspaces(
  environment: Environment,
  common: CommonSettings,
): { readonly workspaces: readonly WorkspaceConfig[]; readonly problems: readonly string[] } {
  const { WORKSPACES: names = listedWorkspaces(environment).filter(isWorkspaceName) } = common;
  const problems = sharedVariables(names);
  const workspaces: WorkspaceConfig[] = [];
  const { UPSTREAM_BASE_URL: commonBaseUrl, UPSTREAM_API_KEY_FROM: keyFrom } = common;
  const { UPSTREAM_API_KEY_PREVIOUS_FROM: previousKeyFrom, UPSTREAM_LIMIT: limits = [] } = common;
  if (hasUnnamed(environment)) {
    if (keyFrom !== undefined) {
      workspaces.push({ name: '', baseUrl: commonBaseUrl as URL, keyFrom, previousKeyFrom, limits });
    }
  } else if (previousKeyFrom !== undefined) {
    problems.push(
      'UPSTREAM_API_KEY_PREVIOUS_FROM is for the unnamed workspace, which there is only with UPSTREAM_API_KEY_FROM or UPSTREAM_API_KEY',
    );
  }
  for (const name of new Set(names)) {
    const read = readWorkspace(environment, name, commonBaseUrl, limits);
    problems.push(...read.problems);
    if (read.workspace !== undefined) workspaces.push(read.workspace);
  }
  return { workspaces, problems };
}

/** The names of all workspaces, the unnamed one first where it exists. */
export function workspaceNames(environment: Environment, names: readonly string[]): readonly string[] {
  return [...(hasUnnamed(environment) ? [''] : []), ...new Set(names)];
}

/** Whether the unnamed workspace exists beside the named ones. */
function hasUnnamed(environment: Environment): boolean {
  const isSet = (name: string): boolean => (environment[name]?.trim() ?? '') !== '';
  return (
    listedWorkspaces(environment).length === 0 || isSet('UPSTREAM_API_KEY_FROM') || isSet('UPSTREAM_API_KEY')
  );
}

function readWorkspace(
  environment: Environment,
  name: string,
  commonBaseUrl: URL | undefined,
  commonLimits: readonly AttemptLimit[],
): { workspace: WorkspaceConfig | undefined; problems: string[] } {
  const problems: string[] = [];
  function read<T>(setting: WorkspaceSetting, reader: Reader<T>): T | undefined {
    const variable = variableOf(setting, name);
    const given = environment[variable]?.trim() || undefined;
    if (given === undefined && workspaceSettings[setting].required) {
      problems.push(`${variable} is required: WORKSPACES lists ${name}`);
    }
    try {
      return given === undefined ? undefined : reader(given);
    } catch (error) {
      if (!(error instanceof ConfigValueError)) throw error;
      problems.push(`${variable} ${error.message}`);
      return undefined;
    }
  }
  const keyFrom = read('UPSTREAM_API_KEY_FROM', text);
  const previousKeyFrom = read('UPSTREAM_API_KEY_PREVIOUS_FROM', text);
  const own = read('UPSTREAM_BASE_URL', baseUrl) ?? (commonBaseUrl as URL);
  const limits = read('UPSTREAM_LIMIT', attemptLimits) ?? commonLimits;
  const workspace =
    keyFrom === undefined ? undefined : { name, baseUrl: own, keyFrom, previousKeyFrom, limits };
  return { workspace, problems };
}

/** Names that cannot be told apart by their variables. */
function sharedVariables(names: readonly string[]): string[] {
  const byVariable = Map.groupBy(names, (name) => variableOf('UPSTREAM_API_KEY_FROM', name));
  return [...byVariable]
    .filter(([, alike]) => alike.length > 1)
    .map(([variable, alike]) => `WORKSPACES has ${alike.join(' and ')}, which both give ${variable}`);
}

/** The workspace that a variable seems to be for, in lower case; `undefined` for a variable of another kind. */
export function workspaceOfVariable(variable: string): string | undefined {
  return ownVariable.exec(variable)?.[1]?.toLowerCase().replaceAll('_', '-');
}

/** What the gate may use of a workspace's limits: the reserve, a part of each, is left to other programs. */
export function usedLimits(
  { limits }: Pick<WorkspaceConfig, 'limits'>,
  reserve: number,
): readonly AttemptLimit[] {
  // What 1 - 0.1 and the like lack of the decimal number must not cost an attempt.
  return limits.map((limit) => ({
    ...limit,
    most: Math.max(Math.floor(limit.most * (1 - reserve) + 1e-9), 1),
  }));
}

/** Where the keys of a workspace come from, each with the setting that says so. */
export function keyPlaces({ name, keyFrom, previousKeyFrom }: WorkspaceConfig) {
  return {
    from: keyFrom,
    previousFrom: previousKeyFrom,
    settings: {
      from: variableOf('UPSTREAM_API_KEY_FROM', name),
      previousFrom: variableOf('UPSTREAM_API_KEY_PREVIOUS_FROM', name),
    },
  };
}
