/**
 * What `check.ts` reports: what an outcome means, the verdict, the members of its JSON, and the same as lines for people.
 * Pure: no I/O, no clock.
 */

import { GatewayError, type ProxyErrorType } from '../errors.ts';
import { ProxyError } from '../exchange/proxy.ts';
import type { StoreTrial } from '../fleet/fleet.ts';
import type { StatedLimit } from '../http/stated-wait.ts';
import { visible } from '../log/text-lines.ts';
import { specifiedOperations } from '../operations.ts';

/** What `--json` prints. */
export interface CheckReport {
  ok: boolean;
  exitStatus: 0 | 1 | 2;
  summary: string;
  settings: {
    ok: boolean;
    problems: readonly string[];
    warnings?: readonly string[];
    baseUrl?: string;
    /** Through which the upstream is reached. */
    proxy?: string;
  };
  key?: { ok: boolean; source?: string; fingerprint?: string; generation?: number } & StoreFailure;
  previousKey?: { ok: boolean; source?: string; fingerprint?: string } & StoreFailure;
  sharedStore?: StoreTrial;
  logins?: readonly LoginTrial[];
  calls: CallReport[];
  /** What is no fault and should be known; left out where there is nothing. */
  notices?: readonly string[];
  /** What is told of the upstream's limit; left out where nothing is. */
  limit?: LimitReport;
}

export interface LimitReport {
  /** In UPSTREAM_LIMIT, less the reserve. */
  readonly told: readonly { readonly limit: number; readonly window: string }[];
  /** By the upstream, in its last answer. */
  readonly stated: readonly {
    readonly field: string;
    readonly remaining: number;
    readonly resetsInSeconds: number;
  }[];
  readonly learned: LearnedLimit;
}

/** By the gateway that runs with these settings, from 429s. */
export interface LearnedLimit {
  /** Its address; null where there is none to ask. */
  readonly asked: string | null;
  /** Null where it has learned none; left out where it could not be asked. */
  readonly attemptsPerSecond?: number | null;
  readonly problem?: string;
}

/** @param told UPSTREAM_LIMIT less the reserve. @param stated by the upstream */
export function limitReport(
  told: readonly { readonly most: number; readonly window: string }[],
  stated: readonly StatedLimit[],
  learned: LearnedLimit = { asked: null, problem: 'no gateway was asked' },
): LimitReport | undefined {
  if (told.length + stated.length === 0 && typeof learned.attemptsPerSecond !== 'number') return undefined;
  return {
    told: told.map(({ most, window }) => ({ limit: most, window })),
    stated: stated.map(({ name, remaining, resetMs }) => ({
      field: name,
      remaining,
      resetsInSeconds: Math.ceil(resetMs / 1_000),
    })),
    learned,
  };
}

/** The keys of a company login, as they are fetched from its issuer. */
export interface LoginTrial {
  readonly address: string;
  /** The callers that it makes. */
  readonly callers: readonly string[];
  readonly ok: boolean;
  /** Keys that can verify a signature; left out where they cannot be fetched. */
  readonly keys?: number;
  readonly problem?: string;
}

interface StoreFailure {
  problem?: string;
  /** What the store's command said, on a terminal only; never in JSON. */
  said?: readonly string[];
}

export interface CallReport {
  method: 'GET';
  path: string;
  status: number | null;
  outcome: CallOutcome | 'skipped';
  meaning: string;
  /** How long the upstream asks to wait before it is asked again. */
  retryAfterSeconds?: number;
}

export type WorkspaceReport = CheckReport & { readonly workspace: string | null };

/** What `--json` prints of several workspaces. */
export interface AllReport {
  readonly ok: boolean;
  readonly exitStatus: 0 | 1 | 2;
  readonly summary: string;
  readonly warnings: readonly string[];
  readonly workspaces: readonly WorkspaceReport[];
}

/** What a read is skipped for is told by another one, or is no fault. */
const harmless: readonly CallReport['outcome'][] = [
  'accepted',
  'rate-limited',
  'parameters-missing',
  'skipped',
];

/** Why the gateway could not work, or not as well as the settings ask for; `undefined` where all is well. */
export function shortcoming(
  {
    calls,
    previousKey,
    sharedStore,
    logins = [],
  }: Pick<CheckReport, 'calls' | 'previousKey' | 'sharedStore' | 'logins'>,
  fellBack: boolean,
): string | undefined {
  if (calls.every(({ outcome }) => ['rate-limited', 'skipped'].includes(outcome))) {
    return 'The upstream limits requests now, so whether the gateway could work is not known yet.';
  }
  const accepted = calls.some((call) => call.outcome === 'accepted');
  const failed = calls.find((call) => !harmless.includes(call.outcome));
  if (failed !== undefined) {
    const isSpecified = specifiedOperations.some(({ path }) => path === failed.path);
    return isSpecified ? failed.meaning : 'The gateway could work, but not for each read of UPSTREAM_READS.';
  }
  if (!accepted) return calls.find((call) => call.outcome !== 'skipped')?.meaning ?? '';
  if (fellBack) {
    return 'The gateway could work, but the upstream refuses the newest key and takes the previous one.';
  }
  if (previousKey?.ok === false) {
    return 'The gateway could work, but there would be no previous key to fall back to.';
  }
  if (sharedStore?.ok === false) return 'The gateway could work, but alone: it cannot use the shared store.';
  const dead = logins.flatMap(({ ok, callers }) => (ok ? [] : callers));
  return dead.length === 0
    ? undefined
    : `The gateway could work, but company logins of ${dead.join(', ')} would get 401.`;
}

/** A report as lines: what a store or a server says may hold characters that steer a terminal. */
export function inWords(report: CheckReport): string {
  const { settings, key } = report;
  const lines = settings.ok
    ? [
        `Settings: fine. The upstream is ${settings.baseUrl}${settings.proxy ? `, through the proxy ${settings.proxy}` : ''}`,
      ]
    : ['Settings:', ...settings.problems.map((problem) => `  ${problem}`)];
  for (const warning of settings.warnings ?? []) lines.push(`Without effect: ${warning}`);
  if (key?.ok) {
    lines.push(
      `Key: ${key.source} can be read; fingerprint ${key.fingerprint}, generation ${key.generation}`,
    );
  } else if (key !== undefined) {
    lines.push(`Key: ${key.problem}`, ...ownWords(key));
  }
  if (report.previousKey?.ok) {
    const { source, fingerprint } = report.previousKey;
    lines.push(`Previous key: ${source} can be read; fingerprint ${fingerprint}`);
  } else if (report.previousKey !== undefined) {
    lines.push(`Previous key: ${report.previousKey.problem}`, ...ownWords(report.previousKey));
  }
  if (report.sharedStore !== undefined) {
    const { address, kind, nodes, problem, warning } = report.sharedStore;
    const found = kind === 'sentinel' || kind === 'cluster' ? ` (at ${nodes.join(', ') || 'no server'})` : '';
    const outcome = problem === undefined ? 'can be used' : `cannot be used: ${problem}`;
    lines.push(`Shared store: ${address}${found} ${outcome}`);
    if (warning !== undefined) lines.push(`Warning: ${warning}`);
  }
  for (const { address, callers, keys, problem } of report.logins ?? []) {
    const found = problem ?? `${keys === 1 ? 'one key' : `${keys} keys`}`;
    lines.push(`Company logins of ${callers.join(', ')}: ${address}: ${found}`);
  }
  // What was said of one call is not said again of the next, nor at the end.
  const said = new Set<string>();
  for (const { method, path, status, outcome, meaning } of report.calls) {
    const came = outcome === 'skipped' ? [] : [`${status ?? 'no answer'}.`];
    lines.push([`${method} ${path}:`, ...came, ...(said.has(meaning) ? [] : [meaning])].join(' '));
    said.add(meaning);
  }
  if (report.limit !== undefined) {
    lines.push(limitInWords(report.limit));
    const asked = report.calls.filter(({ outcome }) => outcome !== 'skipped').length;
    const reads = asked === 1 ? 'read' : 'reads';
    if (report.limit.told.length > 0)
      lines.push(
        `Beside it: this check has sent ${asked} ${reads} with the same key, which no gateway counts`,
      );
  }
  for (const notice of report.notices ?? []) lines.push(`Notice: ${notice}`);
  const verdict = said.has(report.summary) ? 'The gateway could not work, as said above.' : report.summary;
  lines.push(`${report.ok ? 'Fine' : 'Failed'}: ${verdict}`);
  return `${lines.map(visible).join('\n')}\n`;
}

function limitInWords({ told, stated, learned }: LimitReport): string {
  const yours = told.map(({ limit, window }) => `${limit}/${window}`).join(', ');
  const theirs = stated.map(
    ({ field, remaining, resetsInSeconds }) => `${remaining} left for ${resetsInSeconds} s (${field})`,
  );
  return [
    `Limit: ${yours === '' ? 'UPSTREAM_LIMIT tells none' : `UPSTREAM_LIMIT tells ${yours}`}`,
    theirs.length === 0 ? 'the upstream tells none' : `the upstream tells ${theirs.join(', ')}`,
    learnedInWords(learned),
  ].join('; ');
}

function learnedInWords({ asked, attemptsPerSecond, problem }: LearnedLimit): string {
  if (problem !== undefined) return `what was learned is not known here: ${problem}`;
  const pace = attemptsPerSecond == null ? 'no limit' : `about ${attemptsPerSecond.toPrecision(3)} a second`;
  return `the gateway that runs has learned ${pace} (${asked})`;
}

/** A command's own words, quoted: the last lines of each run, none of them long. */
function ownWords({ said = [] }: StoreFailure): string[] {
  const lines = said.flatMap((text) => text.split(/\r\n?|\n/).slice(-mostLines));
  return lines.map((line) => `  it said: ${line.slice(0, mostCharacters)}`);
}

const mostLines = 10;
const mostCharacters = 300;

/** The same of several workspaces, as lines. */
export function allInWords(report: AllReport): string {
  const parts = report.workspaces.map(
    (one) => `Workspace: ${titleOf(one.workspace)}\n${inWords(one).replaceAll(/^(?=.)/gm, '  ')}`,
  );
  const warnings = report.warnings.map((warning) => `Warning: ${warning}\n`);
  return `${[...parts, ...warnings].join('')}${report.ok ? 'Fine' : 'Failed'}: ${report.summary}\n`;
}

/** A workspace in a sentence. @param workspace `null` for the unnamed one */
export function titleOf(workspace: string | null): string {
  return workspace ?? 'the unnamed workspace';
}

/** How one call went, for programs. */
export type CallOutcome =
  | 'accepted'
  | 'key-rejected'
  | 'operation-refused'
  | 'role-insufficient'
  | 'parameters-missing'
  | 'rate-limited'
  | 'unexpected-status'
  | 'unreachable'
  | 'timeout'
  | 'invalid-response'
  | 'failed';

export interface Meaning {
  readonly outcome: CallOutcome;
  readonly text: string;
}

/**
 * The specification's table of statuses, and what to do about each.
 *
 * @param waitMs how long the upstream asks to wait, where it says so
 * @param isAdded whether it was a read of UPSTREAM_READS, which no specification tells us of
 */
export function meaningOfStatus(status: number, waitMs?: number, isAdded = false): Meaning {
  const wait = waitMs === undefined ? undefined : `${Math.ceil(waitMs / 1_000)} s, as it says`;
  if (status >= 200 && status < 300) return { outcome: 'accepted', text: 'The key was accepted.' };
  switch (status) {
    case 401:
      return keyRejected;
    case 403:
      return {
        outcome: 'role-insufficient',
        text: 'The key is valid, but the workspace role of its holder is insufficient for this read. Use a key of a holder with a sufficient role.',
      };
    case 400:
    case 422:
      if (!isAdded) break;
      return {
        outcome: 'parameters-missing',
        text: 'The upstream has this read, and wants parameters in its query, which a check cannot know.',
      };
    case 404:
      return {
        outcome: 'unexpected-status',
        text: isAdded
          ? 'The upstream has nothing at this address: correct it in UPSTREAM_READS, as it stands behind the /api of UPSTREAM_BASE_URL, or leave it out.'
          : 'The upstream has nothing at this address. Is UPSTREAM_BASE_URL right? It ends with /api, and has that once.',
      };
    case 429:
      return {
        outcome: 'rate-limited',
        text: `The upstream limits requests now, and so said nothing about the key. Wait${wait === undefined ? '' : ` ${wait}`}, then check again.`,
      };
  }
  return {
    outcome: 'unexpected-status',
    text:
      status >= 500
        ? `The upstream has a fault of its own, and so said nothing about the key. Check again ${wait === undefined ? 'later' : `in ${wait}`}.`
        : `The upstream answered what its specification does not say for this read. Is ${isAdded ? 'UPSTREAM_READS' : 'UPSTREAM_BASE_URL'} right?`,
  };
}

/** What kept a call from getting an answer. */
export function meaningOfFailure(error: unknown): Meaning {
  if (!(error instanceof GatewayError)) {
    return { outcome: 'failed', text: 'The gateway failed to make the call.' };
  }
  switch (error.code) {
    case 'upstream-key-rejected':
      return keyRejected;
    case 'upstream-unreachable':
      if (error.cause instanceof ProxyError) {
        const { message } = error.cause;
        return { outcome: 'unreachable', text: `${message.charAt(0).toUpperCase()}${message.slice(1)}.` };
      }
      return {
        outcome: 'unreachable',
        text: (error.proxyError && unreachable[error.proxyError]) ?? 'The upstream cannot be reached.',
      };
    case 'upstream-timeout':
      return {
        outcome: 'timeout',
        text:
          (error.proxyError && unreachable[error.proxyError]) ??
          'The upstream took longer to answer than UPSTREAM_TIMEOUT allows.',
      };
    case 'upstream-invalid-response':
      return {
        outcome: 'invalid-response',
        text: `The upstream's answer cannot be passed on (${error.message}). Is UPSTREAM_BASE_URL right, and is there no login page or proxy in between?`,
      };
    default:
      return { outcome: 'failed', text: `The call was not made: ${error.message}.` };
  }
}

/** Of links that nothing leads back. */
export const leadPastNotice =
  'Answers name the upstream’s address: callers that follow it would send their token past the gateway. Set PUBLIC_BASE_URL to the address that callers use.';

/** A 401 to a key that a probe found good. */
export const operationRefused: Meaning = {
  outcome: 'operation-refused',
  text: 'The upstream refuses this read (401), but takes the key elsewhere.',
};

const keyRejected: Meaning = {
  outcome: 'key-rejected',
  text: 'The upstream refused the key: it was revoked, mistyped (quotation marks count), or belongs to another upstream. Create a new one in the settings of the web application (API keys, action Create) and put it in the store.',
};

const unreachable: Partial<Record<ProxyErrorType, string>> = {
  dns_error: 'The host name in UPSTREAM_BASE_URL is not known.',
  dns_timeout: 'The host name in UPSTREAM_BASE_URL could not be looked up in time.',
  connection_refused: 'The upstream refused the connection: nothing listens at that host and port.',
  connection_timeout: 'The upstream did not take the connection in time: a firewall may be in between.',
  connection_terminated: 'The upstream broke off the connection.',
  tls_certificate_error:
    'The certificate of the upstream cannot be verified: it has expired, is for another name, or is signed by an unknown authority.',
  tls_protocol_error:
    'No TLS connection could be agreed on: is http where https should be, or the other way round?',
  http_response_timeout: 'The upstream took longer to answer than UPSTREAM_TIMEOUT allows.',
};
