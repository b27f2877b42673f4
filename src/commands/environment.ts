/**
 * The one place that reads the process's environment, `.env` included, and turns it into settings; and that keeps the
 * process from being opened while it holds a secret (`main.ts` ignores SIGUSR1 before it imports anything).
 */

import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseEnv } from 'node:util';
import { type Config, ConfigError, readConfig } from '../config/config.ts';
import { unknownSettings } from '../config/misspellings.ts';
import { caselessSettings, type Environment, noProxy, variableIn } from '../config/values.ts';
import { SettingError } from '../errors.ts';
import { describeUnreadable, readTextOrPipe } from '../files/read.ts';
import { findRefusedVariable, storeCommandMark } from '../key/node-flags.ts';
import { specifiedOperations } from '../operations.ts';

/**
 * The environment, with what a file adds: the one given, or `.env` in the working directory, where there is one. What
 * is set already wins. The file is read once: it may be a pipe, which a second reading would find empty.
 *
 * @throws ConfigError naming what `.env.example` requires and nothing sets, and what is wrong with the file; the rest
 * of it is loaded all the same, so that every other problem of the settings is found with it
 * @throws UnsafeProcessError for a file that tells Node what is not for a process with a secret; none of it is loaded
 */
export async function loadEnvironment(envFile?: string): Promise<Environment> {
  const file = resolve(envFile ?? '.env');
  const what = envFile === undefined ? 'the file' : '--env-file: the file';
  // The default is nothing that was asked for: a folder of that name may be another program's.
  if (envFile === undefined) {
    const found = statSync(file, { throwIfNoEntry: false });
    if (!found?.isFile() && !found?.isFIFO()) return withBothSpellings();
  }
  const problems: string[] = [];
  let text = '';
  try {
    text = await readWithWord(what, file);
    if (text === '' && statSync(file).isFIFO())
      problems.push(`${what} ${file} is a pipe with nothing in it: ${drained}`);
  } catch (error) {
    problems.push(describeUnreadable(what, file, error));
  }
  const written = await readSettingsText(what, file, text);
  problems.push(...written.problems);
  for (const [name, value] of Object.entries(written.settings)) process.env[name] ??= value;
  // Ours, wherever we run: another project's `.env.example` beside its `.env` says nothing about us.
  const example = fileURLToPath(new URL('../../.env.example', import.meta.url));
  const dotenv = await loadDotenv();
  try {
    // No path: the file has been read. Without `quiet` it prints a banner among the log's lines.
    dotenv.config({ example, quiet: true, path: [] });
  } catch (error) {
    // Its types name the error's class, but only as a type.
    const { missing } = error as { missing?: readonly string[] };
    if (missing === undefined) throw error;
    problems.push(...missing.map((name) => `${name} is required`));
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return withBothSpellings();
}

/** Google's library knows a proxy by the lower-case names alone, others by the upper-case ones. */
function withBothSpellings(): Environment {
  for (const name of ['HTTPS_PROXY', 'NO_PROXY']) {
    const value = variableIn(process.env, name);
    for (const spelling of [name, name.toLowerCase()]) if (value) process.env[spelling] ||= value;
  }
  return process.env;
}

/**
 * What the text of a file sets, and by their lines what is wrong with it.
 *
 * @param what how the file is called in what is said of it
 * @throws UnsafeProcessError as `loadEnvironment`
 */
export async function readSettingsText(
  what: string,
  file: string,
  text: string,
): Promise<{ readonly settings: Readonly<Record<string, string>>; readonly problems: readonly string[] }> {
  const settings = (await loadDotenv()).parse(text);
  refuseUnsafe(what, file, text, settings);
  const lines = malformedLines(text);
  const problems = lines
    .slice(0, mostLinesNamed)
    .map((line) => `${what} ${file}, line ${line}: is not NAME=value, a comment or empty`);
  if (lines.length > mostLinesNamed) {
    problems.push(`${what} ${file}: and ${lines.length - mostLinesNamed} more such lines`);
  }
  return { settings, problems };
}

/** Only for development, so production does not pay for loading it. */
async function loadDotenv(): Promise<DotenvSafe> {
  return ((await import('dotenv-safe')) as unknown as { default: DotenvSafe }).default;
}

/** Its published types lack `parse`, and that there may be no path. */
interface DotenvSafe {
  parse(text: string): Readonly<Record<string, string>>;
  config(options: { readonly example: string; readonly quiet: true; readonly path: readonly string[] }): void;
}

/** How many malformed lines are named: a file that holds no settings may have thousands. */
const mostLinesNamed = 5;
const drained =
  'Node has read it before the gateway, unless -- stands before the program: node -- dist/main.js serve --env-file PATH';
/** How long the reading of a file may take before a line says what is waited for. */
const patienceMs = 2_000;

/** The text of a file or a pipe. A pipe that nothing writes to is waited for; not in silence. */
async function readWithWord(what: string, file: string): Promise<string> {
  const timer = setTimeout(() => {
    process.stderr.write(`analytics-gateway: waiting for the end of ${what} ${file}\n`);
  }, patienceMs);
  try {
    return await readTextOrPipe(file);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Node takes NODE_OPTIONS from the file of `--env-file` before any of our code runs, unless `--` stands before the
 * program; it reads by rules of its own, so its reading is judged as well as ours.
 */
function refuseUnsafe(what: string, file: string, text: string, settings: Environment): void {
  const refused = findRefusedVariable(settings) ?? findRefusedVariable(parseEnv(text));
  if (refused === undefined) return;
  const at = text.split(/\r\n?|\n/).findIndex((line) => line.includes(refused.name));
  throw new UnsafeProcessError(`${what} ${file}, line ${at + 1}: ${refused.why}`);
}

/** What was loaded so far, for what is to be said or done though it is incomplete. */
export function environmentAtHand(): Environment {
  return process.env;
}

let whatThereIs: Promise<Environment> | undefined;

/**
 * The same, with the file or `.env`, once: an incomplete one stops a gateway, and a token must be revoked all the same.
 *
 * @throws ConfigError naming what is wrong with the file of `--env-file`
 * @throws UnsafeProcessError as `loadEnvironment`, for that file
 */
export function loadWhatThereIs(envFile?: string): Promise<Environment> {
  whatThereIs ??= loadEnvironment(envFile).catch((error: unknown) => {
    if (envFile !== undefined && !(error instanceof ConfigError)) throw error;
    const problems = error instanceof ConfigError ? error.problems : [];
    const ofFile = problems.filter((problem) => problem.startsWith('--env-file: '));
    if (ofFile.length > 0) throw new ConfigError(ofFile);
    return environmentAtHand();
  });
  return whatThereIs;
}

/** The settings of this process. @throws ConfigError */
export async function loadConfig(envFile?: string): Promise<{ config: Config; environment: Environment }> {
  const environment = await loadEnvironment(envFile);
  return { config: readConfig(environment), environment };
}

/**
 * Names that have no effect beside what else is set: unknown ones, and settings that others put out of use.
 *
 * @param problems each begins with its setting, of which nothing further is said here
 */
export function settingsWithoutEffect(environment: Environment, problems: readonly string[] = []): string[] {
  const isSet = (name: string): boolean => (environment[name]?.trim() ?? '') !== '';
  const ignored: string[] = [];
  const isNamed = Object.entries(environment).some(
    ([name, value]) => name.includes('_FROM') && value?.trim() === 'env:UPSTREAM_API_KEY',
  );
  if (isSet('UPSTREAM_API_KEY') && isSet('UPSTREAM_API_KEY_FROM') && !isNamed) {
    ignored.push(
      'UPSTREAM_API_KEY is ignored, because UPSTREAM_API_KEY_FROM names another place: leave one of them out',
    );
  }
  for (const name of [
    'SHARED_STORE_PASSWORD_FROM',
    'SHARED_STORE_PREFIX',
    'SHARED_STORE_SENTINEL_PASSWORD_FROM',
  ]) {
    if (isSet(name) && !isSet('SHARED_STORE'))
      ignored.push(`${name} is ignored, because SHARED_STORE is not set`);
  }
  const asksSentinels = /^rediss?\+sentinel:/.test(environment['SHARED_STORE'] ?? '');
  if (isSet('SHARED_STORE_SENTINEL_PASSWORD_FROM') && isSet('SHARED_STORE') && !asksSentinels)
    ignored.push('SHARED_STORE_SENTINEL_PASSWORD_FROM is ignored, because SHARED_STORE names no sentinels');
  const isPassed = Number(environment['LISTEN_PID']) === process.pid && isSet('LISTEN_FDS');
  if (isPassed && !['HOST', 'ADMIN_HOST'].some((name) => environment[name]?.trim().startsWith('fd:')))
    ignored.push('LISTEN_FDS is ignored: a socket was passed to this process, and HOST does not say fd:3');
  ignored.push(...proxiesWithoutEffect(environment), ...propagatorsWithoutEffect(environment));
  const named = new Set(problems.map((problem) => problem.split(' ', 1)[0]));
  return [...unknownSettings(environment), ...ignored, ...readsWithoutEffect(environment)].filter(
    (one) => !named.has(one.split(' ', 1)[0]),
  );
}

/** Of OpenTelemetry's propagators the gateway has one, which it cannot leave out: callers' `traceparent` is always read. */
function propagatorsWithoutEffect(environment: Environment): string[] {
  const named = (environment['OTEL_PROPAGATORS'] ?? '').split(',').map((one) => one.trim());
  const isObeyed = named.every((one) => one === '') || named.every((one) => one === 'tracecontext');
  return isObeyed
    ? []
    : ['OTEL_PROPAGATORS is not obeyed: the gateway reads and sends W3C Trace Context (tracecontext) alone'];
}

/** Variables of a proxy that change nothing: their operator believes that something goes that way. */
function proxiesWithoutEffect(environment: Environment): string[] {
  const ignored: string[] = [];
  for (const name of caselessSettings) {
    const [upper, lower] = [environment[name]?.trim(), environment[name.toLowerCase()]?.trim()];
    if (upper && lower && upper !== lower)
      ignored.push(`${name} is ignored, because ${name.toLowerCase()} says something else and comes first`);
  }
  if (variableIn(environment, 'HTTPS_PROXY') === undefined) {
    for (const name of ['HTTP_PROXY', 'ALL_PROXY']) {
      if (environment[name]?.trim() || environment[name.toLowerCase()]?.trim())
        ignored.push(`${name} is ignored: what goes out by https: asks HTTPS_PROXY alone, which is not set`);
    }
    // Of an http: upstream NO_PROXY says that HTTP_PROXY is not its way.
    const isHttp = Object.entries(environment).some(
      ([name, value]) => name.startsWith('UPSTREAM_BASE_URL') && value?.trim().startsWith('http:'),
    );
    const isAsked = isHttp && variableIn(environment, 'HTTP_PROXY') !== undefined;
    for (const name of [...(isAsked ? [] : ['NO_PROXY']), 'PROXY_AUTHORIZATION_FROM']) {
      if (variableIn(environment, name)) ignored.push(`${name} is ignored, because HTTPS_PROXY is not set`);
    }
    return ignored;
  }
  // Their libraries speak gRPC, and find the proxy themselves.
  const ofTraces = (name: string): string | undefined =>
    environment[`OTEL_EXPORTER_OTLP_TRACES_${name}`] || environment[`OTEL_EXPORTER_OTLP_${name}`];
  const isGrpc = Boolean(ofTraces('ENDPOINT')) && ofTraces('PROTOCOL') === 'grpc';
  const isGoogle = Object.entries(environment).some(
    ([name, value]) => name.includes('_FROM') && value?.trim().startsWith('gcp-sm:'),
  );
  for (const what of [...(isGoogle ? ['gcp-sm:'] : []), ...(isGrpc ? ['traces by gRPC'] : [])]) {
    if (variableIn(environment, 'PROXY_AUTHORIZATION_FROM'))
      ignored.push(
        `PROXY_AUTHORIZATION_FROM is not used for ${what}, whose library takes credentials from HTTPS_PROXY alone`,
      );
    if (variableIn(environment, 'HTTPS_PROXY')?.startsWith('https:'))
      ignored.push(`HTTPS_PROXY is not used for ${what}, whose library knows proxies by http: alone`);
  }
  const { unreadable } = noProxy(variableIn(environment, 'NO_PROXY') ?? '');
  if (unreadable > 0)
    ignored.push(`NO_PROXY has ${unreadable} members that name no host, and are passed over`);
  if (variableIn(environment, 'UPSTREAM_BASE_URL')?.startsWith('http:'))
    ignored.push('HTTPS_PROXY is not used for UPSTREAM_BASE_URL, which is http:');
  return ignored;
}

/** A read that is there already: the first of two wins, so a caller that is granted the second alone is refused. */
function readsWithoutEffect(environment: Environment): string[] {
  const bare = (path: string): string => path.trim().replace(/\/$/, '');
  const added = (environment['UPSTREAM_READS'] ?? '').split(',').map(bare).filter(Boolean);
  const twice = specifiedOperations
    .filter(({ path }) => added.includes(bare(path)))
    .map(({ name }) => `UPSTREAM_READS lists what is allowed as ${name} already; that is its only name`);
  if (new Set(added).size < added.length) twice.push('UPSTREAM_READS lists a read twice');
  return twice;
}

/** Node runs with something that could show a secret, so none may be opened, not even to look for further problems. */
export class UnsafeProcessError extends SettingError {
  override readonly name = 'UnsafeProcessError';
}

/**
 * Run first by each command that holds the key. Closes an inspector that a signal opened before we could look.
 *
 * @throws UnsafeProcessError saying in one line why nothing may start
 */
export async function hardenProcess(): Promise<void> {
  // With a .env it would find the same command there, and start itself for ever, each in a group of its own.
  if (process.env[storeCommandMark] !== undefined) {
    throw new UnsafeProcessError(
      'started by a gateway as the command of its own exec: store. Name a command that prints the key',
    );
  }
  const { default: inspector } = await import('node:inspector');
  if (inspector.url() !== undefined) inspector.close();
  const refused = findRefusedVariable(process.env, process.execArgv);
  if (refused !== undefined) throw new UnsafeProcessError(refused.why);
}

/**
 * The lines of a file of settings that are no assignment, by their numbers from 1: dotenv passes over them in silence. A
 * quoted value may span lines; a quote that nothing closes is one of them.
 */
export function malformedLines(text: string): readonly number[] {
  const malformed: number[] = [];
  let open: { readonly quote: string; readonly line: number } | undefined;
  for (const [index, line] of text.split(/\r\n?|\n/).entries()) {
    if (open !== undefined) {
      if (line.includes(open.quote)) open = undefined;
      continue;
    }
    if (/^\s*(?:#|$)/.test(line)) continue;
    const value = /^\s*(?:export\s+)?[\w.-]+(?:\s*=|:\s)(.*)$/.exec(line)?.[1]?.trim();
    const quote = /^['"`]/.exec(value ?? '')?.[0];
    if (value === undefined) malformed.push(index + 1);
    else if (quote !== undefined && !value.includes(quote, 1)) open = { quote, line: index + 1 };
  }
  return open === undefined ? malformed : [...malformed, open.line];
}
