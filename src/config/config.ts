/**
 * The settings of a gateway, read from an environment. Pure: the environment comes in as an argument, and all problems
 * come out at once, each naming its setting and never a value.
 */
import { isDeepStrictEqual } from 'node:util';
import { SettingError } from '../errors.ts';
import { hostFromUrl, isLoopbackHost, passedSocket, socketPath } from '../http/address.ts';
import { misspelledSettings, unlistedSettings } from './misspellings.ts';
import { type Setting, type SettingName, settings } from './settings.ts';
import { ConfigValueError, type Environment, variableIn } from './values.ts';
import { readWorkspaces, variableOf, type WorkspaceConfig } from './workspaces.ts';

/** The settings as values, under their own names. */
export type Config = {
  readonly [Name in SettingName]: (typeof settings)[Name] extends Setting<infer T> ? T : never;
} & {
  /** Each with a key of its own, the unnamed one first. At least one. */
  readonly workspaces: readonly WorkspaceConfig[];
};

/** Everything that is wrong with the settings, each problem naming its setting. */
export class ConfigError extends SettingError {
  override readonly name = 'ConfigError';
  /** The settings that could be read. */
  readonly readable: Partial<Config>;

  constructor(problems: readonly string[], readable: Partial<Config> = {}) {
    super(...problems);
    this.readable = readable;
  }
}

/**
 * Reads all settings.
 *
 * @param environment names and values; an empty value counts as not set
 * @throws ConfigError with every problem at once
 */
export function readConfig(environment: Environment): Config {
  const { values, problems } = readEach(environment, Object.keys(settings) as SettingName[]);
  const read = readWorkspaces(environment, values as Config);
  const config = { ...values, workspaces: read.workspaces } as Config;
  problems.push(
    ...read.problems,
    ...unlistedSettings(environment),
    ...misspelledSettings(environment),
    ...contradictions(config),
  );
  if (problems.length > 0) throw new ConfigError(problems, config);
  return config;
}

/**
 * Reads some settings alone, for what needs no more.
 *
 * @throws ConfigError with every problem of these
 */
export function readSettings<const Name extends SettingName>(
  environment: Environment,
  names: readonly Name[],
): Pick<Config, Name> {
  const { values, problems } = readEach(environment, names);
  if (problems.length > 0) throw new ConfigError(problems, values);
  return values as Pick<Config, Name>;
}

function readEach(
  environment: Environment,
  names: readonly SettingName[],
): { values: Partial<Config>; problems: string[] } {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const name of names) {
    const setting: Setting<unknown> = settings[name];
    const given = variableIn(environment, name) ?? setting.default;
    if (given === undefined) {
      values[name] = undefined;
      if (setting.required) problems.push(`${name} is required`);
      continue;
    }
    try {
      values[name] = setting.read(given);
    } catch (error) {
      if (!(error instanceof ConfigValueError)) throw error;
      const isQuoted = /^(["']).*\1$/.test(given);
      problems.push(`${name} ${error.message}${isQuoted ? '; its quotation marks count as well' : ''}`);
    }
  }
  return { values: values as Partial<Config>, problems };
}

/** Whether what listens there can be reached from this machine only. */
export function isLocalHost(host: string): boolean {
  return socketPath(host) !== undefined || isLoopbackHost(host);
}

/** The names of the settings whose values are not the default ones. Values may be secrets, so these are names only. */
export function changedSettings(config: Config): string[] {
  const changed = Object.entries<Setting<unknown>>(settings).flatMap(([name, setting]) => {
    const value = config[name as SettingName];
    const usual = setting.default === undefined ? undefined : setting.read(setting.default);
    return isDeepStrictEqual(value, usual) ? [] : [name];
  });
  return [...changed, ...config.workspaces.flatMap((one) => ownSettings(one, config))];
}

/** The names of the settings that a named workspace has of its own. */
function ownSettings({ name, baseUrl, previousKeyFrom, limits }: WorkspaceConfig, config: Config): string[] {
  if (name === '') return [];
  const names = [variableOf('UPSTREAM_API_KEY_FROM', name)];
  if (previousKeyFrom !== undefined) names.push(variableOf('UPSTREAM_API_KEY_PREVIOUS_FROM', name));
  if (baseUrl !== config.UPSTREAM_BASE_URL) names.push(variableOf('UPSTREAM_BASE_URL', name));
  if (limits !== (config.UPSTREAM_LIMIT ?? limits) || (limits.length > 0 && !config.UPSTREAM_LIMIT))
    names.push(variableOf('UPSTREAM_LIMIT', name));
  return names;
}

/** What is wrong between settings that are fine by themselves. A setting that failed is `undefined` here. */
function contradictions(config: Config): string[] {
  const problems: string[] = [];
  const addresses = new Map<string, URL | undefined>([['UPSTREAM_BASE_URL', config.UPSTREAM_BASE_URL]]);
  for (const { name, baseUrl } of config.workspaces) {
    if (baseUrl !== config.UPSTREAM_BASE_URL) addresses.set(variableOf('UPSTREAM_BASE_URL', name), baseUrl);
  }
  for (const [name, base] of addresses) {
    if (base?.protocol !== 'http:' || isLoopbackHost(base.hostname)) continue;
    if (config.HTTP_PROXY && !config.NO_PROXY?.names(hostFromUrl(base.hostname), Number(base.port) || 80)) {
      problems.push(
        `HTTP_PROXY is for ${name} as well, which is http:, and the proxy would read its key: make that https:, or name its host in NO_PROXY`,
      );
    }
    if (config.UPSTREAM_ALLOW_HTTP === false) {
      problems.push(`${name} must be https: unless it is on loopback or UPSTREAM_ALLOW_HTTP=true`);
    }
  }
  const reads = config.UPSTREAM_READS ?? [];
  const [doubled] = [...addresses].find(([, base]) => base?.pathname.endsWith('/api')) ?? [];
  if (doubled !== undefined && reads.some((read) => read.startsWith('/api/'))) {
    problems.push(
      `UPSTREAM_READS has a read that begins with /api/, and ${doubled} ends with /api: it would be asked for /api/api/…. Write reads as they stand behind /api, like /analytics/posts/`,
    );
  }
  if (config.CALLERS_FILE === undefined && config.HOST !== undefined && !isLocalHost(config.HOST)) {
    problems.push(
      'HOST must be loopback or a Unix socket as long as CALLERS_FILE is not set: anyone who reaches the gateway could use the key',
    );
  }
  if (config.REUSE_PORT === 'on' && config.HOST !== undefined && hasNoPort(config.HOST)) {
    problems.push('REUSE_PORT=on shares a port, and HOST names a socket that has none of its own');
  }
  if ((config.TLS_CERT_FILE === undefined) !== (config.TLS_KEY_FILE === undefined)) {
    problems.push('TLS_CERT_FILE and TLS_KEY_FILE must be set together');
  }
  if (config.HTTPS_PROXY?.credentials !== undefined && config.PROXY_AUTHORIZATION_FROM !== undefined) {
    problems.push('PROXY_AUTHORIZATION_FROM and the credentials in HTTPS_PROXY contradict each other');
  }
  problems.push(...sharedPlaces(config));
  problems.push(...unkeyedWithoutUse(config));
  if (config.GATE_MAX_CLOSED === 0 && config.workspaces.some(({ limits }) => limits.length > 0)) {
    problems.push('UPSTREAM_LIMIT needs the gate, which GATE_MAX_CLOSED=0s switches off');
  }
  if (config.RETRY_CAP < config.RETRY_BASE) problems.push('RETRY_CAP must not be below RETRY_BASE');
  if (config.SHUTDOWN_GRACE < config.SHUTDOWN_DELAY) {
    problems.push('SHUTDOWN_GRACE must not be below SHUTDOWN_DELAY, which it includes');
  }
  return problems;
}

/** A misspelt name would leave a field in the key that its operator believes to be out of it. */
function unkeyedWithoutUse(config: Config): string[] {
  const { FORWARD_REQUEST_HEADERS: forwarded, FORWARD_REQUEST_HEADERS_UNKEYED: unkeyed } = config;
  if (forwarded === undefined || unkeyed === undefined) return [];
  return unkeyed.every((name) => forwarded.includes(name))
    ? []
    : ['FORWARD_REQUEST_HEADERS_UNKEYED must name only fields that FORWARD_REQUEST_HEADERS names as well'];
}

function hasNoPort(host: string): boolean {
  return socketPath(host) !== undefined || passedSocket(host) !== undefined;
}

/** What the two listeners cannot both have. */
function sharedPlaces({ HOST, PORT, ADMIN_HOST, ADMIN_PORT }: Config): string[] {
  if (HOST === undefined || ADMIN_HOST === undefined || ADMIN_PORT === 'off') return [];
  const overlap = [HOST, ADMIN_HOST].some((host) => host === '0.0.0.0' || host === '::');
  if (HOST !== ADMIN_HOST && (!overlap || [HOST, ADMIN_HOST].some(hasNoPort))) return [];
  if (hasNoPort(HOST)) return ['HOST and ADMIN_HOST must not be the same socket'];
  if (PORT === undefined || PORT === 0 || PORT !== ADMIN_PORT) return [];
  const usual = settings.ADMIN_PORT.default;
  return [`PORT and ADMIN_PORT must not be the same port (ADMIN_PORT is ${usual} where it is not set)`];
}
