/**
 * The callers file: what it holds, and every problem in its text. Nothing is guessed: a member that is not known, written
 * twice or of another kind stops the version. Pure: no I/O, no clock.
 */

import { type Config, isLocalHost } from '../config/config.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import { attemptLimits, ConfigValueError } from '../config/values.ts';
import { SettingError } from '../errors.ts';
import { parseRfc3339 } from '../http/date.ts';
import { type CallerLimit, unnamedWorkspace, usualWorkspaces } from './caller.ts';
import type { FlyRule } from './fly.ts';
import {
  itemsOf,
  JsonCheck,
  type JsonMembers,
  type JsonNode,
  JsonTextError,
  memberOf,
  membersOf,
  parseJsonTree,
  textOf,
} from './json.ts';
import { type JwtRule, readJwtRule } from './jwt-rule.ts';

export interface TokenEntry {
  /** SHA-256 of the token, lower-case hexadecimal. */
  readonly digest: string;
  /** Wall clock, ms; `Infinity` where the token does not expire. */
  readonly expiresAt: number;
}

export interface CallerEntry {
  readonly name: string;
  /** In the order of the file: the last is the newest. */
  readonly tokens: readonly TokenEntry[];
  readonly operations: readonly string[];
  /** Empty for the unnamed one. */
  readonly workspaces: readonly string[];
  readonly weight: number;
  readonly limits: readonly CallerLimit[];
  /** The claim of a JWT that tells people apart, where each has limits and a turn of its own. */
  readonly each: string | undefined;
  readonly enforce: boolean;
  readonly jwt: JwtRule | undefined;
  readonly fly: FlyRule | undefined;
  readonly anonymous: boolean;
}

/** What a caller may do where the file has no `operations` for it: the list of API keys is never a default. */
export const defaultOperations: readonly string[] = ['list-accounts'];

/** The same problems, each with the file before its place in the file. */
export function inFile(file: string, problems: readonly string[]): readonly string[] {
  return problems.map((problem) => `${file}: ${problem}`);
}

/** The file cannot be used. Every problem begins with the file's path, and names its place in the file. */
export class CallersFileError extends SettingError {
  override readonly name = 'CallersFileError';
}

export interface CallersFileRules {
  /** The operations that may be granted. */
  readonly operations: ReadonlySet<string>;
  /** The workspaces that may be granted, the empty name for the unnamed one. */
  readonly workspaces: readonly string[];
  /** The public listener is loopback or a Unix socket: the only place for an anonymous caller. */
  readonly loopbackOnly: boolean;
  /** Lower-case names of the fields that go up (FORWARD_REQUEST_HEADERS): none of them may carry a credential. */
  readonly forwardedHeaders: ReadonlySet<string>;
}

/**
 * What a gateway with these settings checks a callers file against.
 *
 * @param operations all that it has
 * @param workspaces all that it has, empty for the unnamed one
 */
export function callersFileRules(
  config: Pick<Config, 'HOST' | 'FORWARD_REQUEST_HEADERS'>,
  operations: readonly { readonly name: string }[],
  workspaces: readonly string[],
): CallersFileRules {
  return {
    operations: new Set(operations.map(({ name }) => name)),
    workspaces,
    loopbackOnly: isLocalHost(config.HOST),
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
  };
}

export interface CallersFileReading {
  readonly entries: readonly CallerEntry[];
  /** Empty where the file is fine. Only then may the entries be used. */
  readonly problems: readonly string[];
}

/** A caller's name: it stands in log lines, metrics and command lines. */
export const callerName = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
const maxCharacters = 4 * 1024 * 1024;
const callerMembers = [
  'name',
  'tokens',
  'operations',
  'workspaces',
  'limit',
  'limits',
  'each',
  'enforce',
  'weight',
  'jwt',
  'fly',
  'anonymous',
];

function readToken(check: JsonCheck, node: JsonNode, path: string): TokenEntry | undefined {
  const members = check.members(node, path, ['sha256', 'expires']);
  if (members === undefined) return undefined;
  const digest = check.text(members.get('sha256'), `${path}.sha256`);
  if (digest !== undefined && !/^[0-9a-f]{64}$/i.test(digest)) {
    check.add(`${path}.sha256`, 'must be 64 hexadecimal digits, the SHA-256 of the token and not the token');
    return undefined;
  }
  let expiresAt = Number.POSITIVE_INFINITY;
  const expires = members.get('expires');
  if (expires !== undefined) {
    const written = check.text(expires, `${path}.expires`);
    const parsed = written === undefined ? undefined : parseRfc3339(written);
    if (written !== undefined && parsed === undefined) {
      check.add(`${path}.expires`, 'must be a date and time as 2027-01-01T00:00:00Z (RFC 3339)');
    }
    expiresAt = parsed ?? 0;
  }
  return digest === undefined ? undefined : { digest: digest.toLowerCase(), expiresAt };
}

function readLimit(check: JsonCheck, node: JsonNode | undefined, path: string): CallerLimit | undefined {
  const members = node === undefined ? undefined : check.members(node, path, ['perSecond', 'burst']);
  if (members === undefined) return undefined;
  if (!members.has('perSecond')) check.add(`${path}.perSecond`, 'is missing');
  const perSecond = check.number(members.get('perSecond'), `${path}.perSecond`, 0.001, 1_000_000) ?? 1;
  const burst = check.number(members.get('burst'), `${path}.burst`, 1, 1_000_000);
  if (burst !== undefined && !Number.isInteger(burst)) check.add(`${path}.burst`, 'must be a whole number');
  return { perSecond, burst: burst ?? Math.max(1, Math.ceil(perSecond)) };
}

/** The limits of an entry, which has `limit`, or several windows in `limits`; one of both. */
export function readLimits(check: JsonCheck, members: JsonMembers, path: string): readonly CallerLimit[] {
  const limit = readLimit(check, members.get('limit'), `${path}.limit`);
  if (!members.has('limits')) return limit === undefined ? [] : [limit];
  if (members.has('limit')) check.add(`${path}.limits`, 'stands beside limit, and a caller has one of both');
  const written = check.texts(members.get('limits'), `${path}.limits`);
  if (written.length === 0) return [];
  if (written.length > mostLimits) check.add(`${path}.limits`, `has more than ${mostLimits} limits`);
  try {
    return parseLimits(written.join(','));
  } catch (error) {
    if (!(error instanceof ConfigValueError)) throw error;
    check.add(`${path}.limits`, error.message);
    return [];
  }
}

const mostLimits = 4;

/** `20/1s,5000/1d`. @throws ConfigValueError saying what is expected */
export function parseLimits(written: string): readonly CallerLimit[] {
  return attemptLimits(written).map(({ most, windowMs }) => ({
    perSecond: (most * 1_000) / windowMs,
    burst: most,
    windowMs,
  }));
}

function readEach(check: JsonCheck, members: JsonMembers, path: string): string | undefined {
  if (!members.has('each')) return undefined;
  if (!members.has('jwt')) check.add(`${path}.each`, 'names a claim, and only a caller with jwt has claims');
  return check.text(members.get('each'), `${path}.each`);
}

function readBoolean(check: JsonCheck, node: JsonNode | undefined, path: string): boolean | undefined {
  if (node !== undefined && node.type !== 'boolean') check.add(path, 'must be true or false');
  return node === undefined ? undefined : node.value === true;
}

function readFly(check: JsonCheck, node: JsonNode | undefined, path: string): FlyRule | undefined {
  const members = node === undefined ? undefined : check.members(node, path, ['org', 'app']);
  if (members === undefined) return undefined;
  const org = check.text(members.get('org'), `${path}.org`);
  const app = check.text(members.get('app'), `${path}.app`);
  return org === undefined || app === undefined ? undefined : { org, app };
}

function readOperations(
  check: JsonCheck,
  node: JsonNode | undefined,
  path: string,
  known: ReadonlySet<string>,
): readonly string[] {
  if (node === undefined) return defaultOperations;
  return check.items(node, path).flatMap((item, index) => {
    const operation = check.text(item, `${path}[${index}]`);
    if (operation !== undefined && !known.has(operation)) {
      check.add(`${path}[${index}]`, `is not an operation of this gateway${nearestOfAll(operation, known)}`);
    }
    return operation ?? [];
  });
}

/** How a list of workspaces names the one without a name. */
export const unnamedWritten = '-';

function readWorkspaces(
  check: JsonCheck,
  node: JsonNode | undefined,
  path: string,
  known: readonly string[],
): readonly string[] {
  if (node === undefined) {
    const usual = usualWorkspaces(known);
    if (usual === undefined)
      check.add(path, 'is missing: this gateway has several workspaces, and all have a name');
    return usual ?? [];
  }
  const granted = check.items(node, path).flatMap((item, index) => {
    const written = check.text(item, `${path}[${index}]`);
    if (written === undefined) return [];
    const name = written === unnamedWritten ? unnamedWorkspace : written;
    if (!known.includes(name)) {
      const names = known.map((one) => (one === unnamedWorkspace ? unnamedWritten : one));
      check.add(`${path}[${index}]`, `is not a workspace of this gateway${nearestOfAll(written, names)}`);
    }
    return name;
  });
  return [...new Set(granted)];
}

function readCaller(
  check: JsonCheck,
  node: JsonNode,
  path: string,
  rules: CallersFileRules,
): CallerEntry | undefined {
  const members = check.members(node, path, callerMembers);
  if (members === undefined) return undefined;
  const name = check.text(members.get('name'), `${path}.name`);
  if (name !== undefined && !callerName.test(name)) {
    check.add(
      `${path}.name`,
      'must be 1 to 64 letters, digits and . _ @ -, beginning with a letter or digit',
    );
  }
  if (!['tokens', 'jwt', 'fly', 'anonymous'].some((way) => members.has(way))) {
    check.add(path, 'has none of tokens, jwt, fly and anonymous, so no request could be from this caller');
  }
  const isAnonymous = readBoolean(check, members.get('anonymous'), `${path}.anonymous`) ?? false;
  if (isAnonymous && !rules.loopbackOnly) {
    check.add(`${path}.anonymous`, 'is allowed only where the gateway listens on loopback or a Unix socket');
  }
  const jwt = members.get('jwt');
  return {
    name: name ?? '',
    tokens: check
      .items(members.get('tokens'), `${path}.tokens`)
      .flatMap((token, index) => readToken(check, token, `${path}.tokens[${index}]`) ?? []),
    operations: readOperations(check, members.get('operations'), `${path}.operations`, rules.operations),
    workspaces: readWorkspaces(check, members.get('workspaces'), `${path}.workspaces`, rules.workspaces),
    weight: check.number(members.get('weight'), `${path}.weight`, 0.01, 100) ?? 1,
    limits: readLimits(check, members, path),
    each: readEach(check, members, path),
    enforce: readBoolean(check, members.get('enforce'), `${path}.enforce`) ?? true,
    jwt: jwt === undefined ? undefined : readJwtRule(check, jwt, `${path}.jwt`, rules.forwardedHeaders),
    fly: readFly(check, members.get('fly'), `${path}.fly`),
    anonymous: isAnonymous,
  };
}

/** What no entry shows alone: names and tokens that stand twice, a second anonymous caller. */
function checkTogether(check: JsonCheck, root: JsonNode | undefined): void {
  const paths = new Map<string, string>();
  const digests = new Map<string, string>();
  let anonymous: string | undefined;

  function addName(name: string | undefined, path: string): void {
    if (name === undefined) return;
    const earlier = paths.get(name);
    if (earlier !== undefined) check.add(`${path}.name`, `is the name of ${earlier} already`);
    else paths.set(name, path);
  }

  function addAnonymous(path: string): void {
    if (anonymous !== undefined)
      check.add(`${path}.anonymous`, `only one caller may be, and ${anonymous} is`);
    anonymous ??= path;
  }

  function addDigest(written: string | undefined, path: string): void {
    if (written === undefined) return;
    const digest = written.toLowerCase();
    const earlier = digests.get(digest);
    if (earlier !== undefined) check.add(path, `is the same token as ${earlier}`);
    else digests.set(digest, path);
  }

  for (const [index, caller] of itemsOf(root).entries()) {
    const path = `callers[${index}]`;
    for (const { name, value } of membersOf(caller)) {
      if (name === 'name') addName(textOf(value), path);
      if (name === 'anonymous' && value.value === true) addAnonymous(path);
      if (name !== 'tokens') continue;
      for (const [place, token] of itemsOf(value).entries()) {
        addDigest(textOf(memberOf(token, 'sha256')), `${path}.tokens[${place}].sha256`);
      }
    }
  }
}

/** Reads a callers file. Every problem is listed with its path in the file, as `callers[2].tokens[0].sha256`. */
export function readCallersFile(text: string, rules: CallersFileRules): CallersFileReading {
  if (text.length > maxCharacters) return { entries: [], problems: ['the file is larger than 4 MiB'] };
  let root: JsonNode;
  try {
    root = parseJsonTree(text);
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    return { entries: [], problems: [`not valid JSON: ${error.message}`] };
  }
  const check = new JsonCheck();
  const callers = check.members(root, '', ['callers'])?.get('callers');
  if (callers === undefined && root.type === 'object') check.add('callers', 'is missing');
  const entries = check
    .items(callers, 'callers')
    .flatMap((node, index) => readCaller(check, node, `callers[${index}]`, rules) ?? []);
  checkTogether(check, callers);
  return { entries, problems: check.problems };
}
