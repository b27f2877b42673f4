/**
 * `check`: says in plain words whether the gateway could work with these settings, before it has to: the
 * settings, the key's store, the two calls of the upstream's specification, and the reads that were added to them. It does
 * not listen. This file asks in order and judges, with parts that it is given; `run-check.ts` calls it for the settings of
 * the command, `check-parts.ts` opens the parts; `check-report.ts` has the verdict and the words.
 */

import { type Answer, plainRead, type UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import { timedContext, waitAtMost } from '../exchange/request-context.ts';
import { Trace } from '../exchange/trace.ts';
import type { StoreTrial } from '../fleet/fleet.ts';
import { namesBase, patternFor } from '../http/links.ts';
import { type StatedLimit, statedLimits } from '../http/stated-wait.ts';
import type { Keyring } from '../key/keyring.ts';
import { describeFailure, KeyStoreError } from '../key/store.ts';
import { specifiedOperations } from '../operations.ts';
import {
  type AllReport,
  allInWords,
  type CallReport,
  type CheckReport,
  inWords,
  type LearnedLimit,
  type LoginTrial,
  leadPastNotice,
  limitReport,
  type Meaning,
  meaningOfFailure,
  meaningOfStatus,
  operationRefused,
  shortcoming,
  titleOf,
  type WorkspaceReport,
} from './check-report.ts';

export interface CheckParts {
  readonly keyring: Keyring;
  /** One read with the key on it: the credential layer over the transport, and what sends again with another key. */
  readonly ask: Handler<UpstreamRequest, Answer>;
  /** One read of the previous key's store, where there is one. Rejects with a `KeyStoreError`. */
  readPrevious?(signal: AbortSignal): Promise<{ source: string; fingerprint: string }>;
  /** One look at the store that gateways share, where the settings name one. Never rejects. */
  tryStore?(): Promise<StoreTrial>;
  /** One look at the key set of each company login. Never rejects. */
  tryLogins?(): Promise<readonly LoginTrial[]>;
  /** What a gateway that runs with these settings has learned of the limit. Never rejects. */
  readLearned?(): Promise<LearnedLimit>;
  /** What commands of `exec:` stores said so far, without the key. */
  said?(): readonly string[];
  /** Lets go of the connections; the keyring is closed by the check. */
  close?(): void | Promise<void>;
}

export interface CheckOptions {
  /** What is wrong with the settings, by name and without values; empty when all are fine. */
  readonly settingsProblems: readonly string[];
  /** Names in the environment that have no effect. */
  readonly warnings?: readonly string[];
  /** What is no fault of the settings and should be known. */
  readonly notices?: readonly string[];
  /** The upstream's base address, to be shown. */
  readonly baseUrl: string;
  /** Through which it is reached. */
  readonly proxy?: string | undefined;
  /** The patterns of UPSTREAM_READS. Those without a parameter are asked. */
  readonly addedReads?: readonly string[];
  /** UPSTREAM_LIMIT less the reserve, and the further fields that state one. */
  readonly toldLimits?: readonly { readonly most: number; readonly window: string }[];
  readonly limitFields?: readonly string[];
  /** Whose links in answers would lead past the gateway; `undefined` where PUBLIC_BASE_URL leads them back. */
  readonly linkedBase?: URL | undefined;
  /** Whether a person reads it: then what a command said is shown where its store gave no key. */
  readonly isTerminal?: boolean;
  /** Called only when the settings are fine. Rejects with a `KeyStoreError` where the key's setting is wrong. */
  open(): Promise<CheckParts>;
  /** How long one call, or one read of a store, may take, waiting for a new key included, in ms. */
  readonly timeoutMs: number;
  readonly json: boolean;
  /** Writes to standard output. */
  write(text: string): void;
}

/** In the specification's order: the recommended first call, then the one whose 200 confirms the key. */
const specifiedCalls: readonly Call[] = specifiedOperations.map(({ name, path }) => ({
  operation: name,
  path,
  isAdded: false,
}));

interface Call {
  readonly operation: string;
  readonly path: string;
  /** By UPSTREAM_READS. */
  readonly isAdded: boolean;
}

const notAsked = 'It was not asked, because the call before failed.';
const notAskedYet = 'It was not asked, because the upstream wants to be left alone for that long.';
const notAskedLimited = 'It was not asked, because the upstream limits requests now.';
const hasParameter = 'It was not asked: a check cannot know what stands for the parameter in it.';

/** @returns the exit status: 0 the gateway could work, 1 it could not, 2 the settings are wrong */
export async function check(options: CheckOptions): Promise<0 | 1 | 2> {
  const report = await examine(options);
  options.write(options.json ? `${JSON.stringify(report, null, 2)}\n` : inWords(report));
  return report.exitStatus;
}

/** One workspace of several, as `check` tries it. */
export interface CheckedWorkspace extends Omit<CheckOptions, 'json' | 'write'> {
  /** Empty for the unnamed workspace. */
  readonly name: string;
}

/** The same for several workspaces, all at once. @returns the worst exit status */
export async function checkEach(
  workspaces: readonly CheckedWorkspace[],
  { json, write }: Pick<CheckOptions, 'json' | 'write'>,
): Promise<0 | 1 | 2> {
  const reports = await Promise.all(
    workspaces.map(async ({ name, ...options }) => ({
      workspace: name || null,
      ...(await examine({ ...options, json, write })),
    })),
  );
  const failed = reports.filter(({ ok }) => !ok).map(({ workspace }) => titleOf(workspace));
  const report: AllReport = {
    ok: failed.length === 0,
    exitStatus: Math.max(...reports.map(({ exitStatus }) => exitStatus)) as 0 | 1 | 2,
    summary:
      failed.length === 0
        ? 'The gateway can work with these settings, for every workspace.'
        : `The gateway cannot work for ${failed.join(', ')}.`,
    warnings: equalKeys(reports),
    workspaces: reports,
  };
  write(json ? `${JSON.stringify(report, null, 2)}\n` : allInWords(report));
  return report.exitStatus;
}

/** Workspaces that have the same key: one of the two has another's. */
function equalKeys(reports: readonly WorkspaceReport[]): readonly string[] {
  const known = reports.filter(({ key }) => key?.fingerprint !== undefined);
  return [...Map.groupBy(known, ({ key }) => key?.fingerprint)]
    .filter(([, alike]) => alike.length > 1)
    .map(([fingerprint, alike]) => {
      const names = alike.map(({ workspace }) => titleOf(workspace)).join(' and ');
      return `${names} have the same key (fingerprint ${fingerprint})`;
    });
}

async function examine(options: CheckOptions): Promise<CheckReport> {
  const { warnings = [], baseUrl } = options;
  const unused = warnings.length === 0 ? {} : { warnings };
  if (options.settingsProblems.length > 0) {
    return {
      ok: false,
      exitStatus: 2,
      summary: 'The settings are wrong; nothing was asked of the upstream.',
      settings: { ok: false, problems: options.settingsProblems, ...unused },
      calls: [],
    };
  }
  const through = options.proxy === undefined ? {} : { proxy: options.proxy };
  const settings = { ok: true, problems: [], ...unused, baseUrl, ...through };
  let parts: CheckParts;
  try {
    parts = await options.open();
  } catch (error) {
    if (!(error instanceof KeyStoreError)) throw error;
    return {
      ok: false,
      exitStatus: 2,
      summary: 'There is no usable key; nothing was asked of the upstream.',
      settings,
      key: { ok: false, problem: error.message },
      calls: [],
    };
  }
  try {
    return await examineKey(parts, options, settings);
  } finally {
    parts.keyring.close();
    await parts.close?.();
  }
}

async function examineKey(
  { keyring, ask, readPrevious, tryStore, tryLogins, readLearned, said }: CheckParts,
  options: CheckOptions,
  settings: CheckReport['settings'],
): Promise<CheckReport> {
  if (!(await within(options.timeoutMs, () => keyring.ready))) {
    const { source, reloadFailure } = keyring.health();
    const problem = reloadFailure ?? tooLate(source, options.timeoutMs);
    return {
      ok: false,
      exitStatus: 1,
      summary: 'The secret store gave no key; nothing was asked of the upstream.',
      settings,
      key: { ok: false, source, problem, ...wordsOf(said, options) },
      calls: [],
    };
  }
  const { source, fingerprint, generation } = keyring.health();
  const earlier = said?.().length ?? 0;
  const tried = readPrevious && (await examinePrevious(readPrevious, options.timeoutMs));
  const previousKey = tried?.ok === false ? { ...tried, ...wordsOf(said, options, earlier) } : tried;
  const sharedStore = tryStore && (await tryStore());
  const logins = (await tryLogins?.()) ?? [];
  const stated: StatedLimit[] = [];
  const links = watchLinks(ask, options.linkedBase);
  const calls = await makeCalls(keyring, links.ask, options, (limits) => stated.splice(0, 9, ...limits));
  const limit = limitReport(options.toldLimits ?? [], stated, await readLearned?.());
  const found = {
    settings,
    key: {
      ok: true,
      source,
      ...(fingerprint === null ? {} : { fingerprint }),
      ...(generation === null ? {} : { generation }),
    },
    ...(previousKey === undefined ? {} : { previousKey }),
    ...(sharedStore === undefined ? {} : { sharedStore }),
    ...(logins.length === 0 ? {} : { logins }),
    calls,
  };
  const summary = shortcoming(found, keyring.health().source !== source);
  const notices = [...(options.notices ?? []), ...(links.leadPast() ? [leadPastNotice] : [])];
  return {
    ok: summary === undefined,
    exitStatus: summary === undefined ? 0 : 1,
    summary: summary ?? 'The gateway can work with these settings.',
    ...found,
    ...(notices.length > 0 ? { notices } : {}),
    ...(limit === undefined ? {} : { limit }),
  };
}

/** Looks for the upstream's base address in what comes. */
function watchLinks(ask: CheckParts['ask'], linkedBase: URL | undefined) {
  let leadPast = false;
  const pattern = linkedBase && patternFor(linkedBase);
  const watched: CheckParts['ask'] = async (request, trace) => {
    const answer = await ask(request, trace);
    leadPast ||= pattern !== undefined && namesBase(answer, pattern);
    return answer;
  };
  return { ask: watched, leadPast: () => leadPast };
}

/** What commands said, for people alone. @param from how much of it was about another store */
function wordsOf(
  said: CheckParts['said'],
  { isTerminal = false, json }: CheckOptions,
  from = 0,
): { said?: readonly string[] } {
  const words = isTerminal && !json ? (said?.().slice(from) ?? []) : [];
  return words.length === 0 ? {} : { said: words };
}

async function makeCalls(
  keyring: Keyring,
  ask: CheckParts['ask'],
  { addedReads = [], limitFields = [], timeoutMs }: CheckOptions,
  onLimits: (limits: readonly StatedLimit[]) => void,
): Promise<CallReport[]> {
  const made: CallReport[] = [];
  const added = addedReads.map((path) => ({ operation: path, path, isAdded: true }));
  const asked = new Set<string>();
  let skips: string | undefined;
  for (const call of [...specifiedCalls, ...added]) {
    // One that is there already is without effect, which is said.
    const bare = call.path.replace(/\/$/, '');
    if (asked.has(bare)) continue;
    asked.add(bare);
    const isLimited = call.isAdded && made.some(({ outcome }) => outcome === 'rate-limited');
    const skipped =
      skips ?? (call.path.includes('/:') ? hasParameter : isLimited ? notAskedLimited : undefined);
    if (skipped !== undefined) {
      made.push({ method: 'GET', path: call.path, status: null, outcome: 'skipped', meaning: skipped });
      continue;
    }
    const { status, waitMs, limits = [], meaning: found } = await makeCall(ask, call, timeoutMs, limitFields);
    if (limits.length > 0) onLimits(limits);
    const isOperation = found.outcome === 'key-rejected' && !isRefused(keyring);
    const meaning = isOperation ? operationRefused : found;
    made.push({
      method: 'GET',
      path: call.path,
      status,
      outcome: meaning.outcome,
      meaning: keyring.scrub.redact(meaning.text),
      ...(waitMs === undefined ? {} : { retryAfterSeconds: Math.ceil(waitMs / 1_000) }),
    });
    // A refused key is refused everywhere, and what cannot be reached now cannot be a moment later.
    if (['key-rejected', 'unreachable', 'timeout'].includes(meaning.outcome)) skips = notAsked;
    if (meaning.outcome === 'rate-limited' && waitMs !== undefined) skips = notAskedYet;
  }
  return made;
}

/** After a 401 the keyring probes the key; where it still is in use and good, the 401 was about the read alone. */
function isRefused(keyring: Keyring): boolean {
  return keyring.current === undefined || keyring.usable !== keyring.current;
}

async function examinePrevious(
  read: NonNullable<CheckParts['readPrevious']>,
  timeoutMs: number,
): Promise<NonNullable<CheckReport['previousKey']>> {
  try {
    const found = await within(timeoutMs, read);
    return found === undefined
      ? { ok: false, problem: tooLate('its store', timeoutMs) }
      : { ok: true, ...found };
  } catch (error) {
    return { ok: false, problem: describeFailure(error) };
  }
}

/** `undefined` when it takes longer. */
async function within<T>(
  timeoutMs: number,
  read: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const limit = new AbortController();
  try {
    const late = waitAtMost(timeoutMs, limit.signal).then(() => undefined);
    return await Promise.race([read(limit.signal), late]);
  } finally {
    limit.abort();
  }
}

function tooLate(what: string, timeoutMs: number): string {
  return `${what}: did not answer within ${timeoutMs / 1000} s`;
}

async function makeCall(
  ask: CheckParts['ask'],
  call: Call,
  timeoutMs: number,
  limitFields: readonly string[],
): Promise<{
  status: number | null;
  meaning: Meaning;
  waitMs?: number | undefined;
  limits?: readonly StatedLimit[];
}> {
  const { context, release } = timedContext(timeoutMs, { name: 'check', weight: 1, background: false });
  const request = plainRead(call.operation, call.path, context);
  try {
    const answer = await ask(request, new Trace(performance.now()));
    const { status, statedWaitMs: waitMs } = answer;
    const limits = statedLimits(answer, limitFields);
    return { status, waitMs, limits, meaning: meaningOfStatus(status, waitMs, call.isAdded) };
  } catch (error) {
    if (context.ended !== undefined) {
      return { status: null, meaning: { outcome: 'timeout', text: 'The upstream did not answer in time.' } };
    }
    const status = (error as { receivedStatus?: number }).receivedStatus ?? null;
    return { status, meaning: meaningOfFailure(error) };
  } finally {
    release();
  }
}
