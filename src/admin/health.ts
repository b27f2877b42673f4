/**
 * The one verdict on the gateway, with a reason for everything that keeps it from being `ok`: what is wrong, and what
 * to do. Status, metrics and console all show this and judge nothing themselves. Pure: no `this`, no I/O, no clock.
 */
import type { LoginKeys } from '../callers/callers-snapshot.ts';
import type { AdminSnapshot, WorkspaceSnapshot } from './snapshot.ts';

/** `degraded`: callers are answered, and something is wrong. `failing`: new reads of the upstream fail. */
export type Health = 'ok' | 'degraded' | 'failing';

export const healthStates: readonly Health[] = ['ok', 'degraded', 'failing'];

/** Every code that a reason may have, the worst first, and what it makes of the gateway: `ok` is a notice. A contract. */
export const healthCodes = {
  'key-missing': 'failing',
  'key-refused': 'failing',
  'circuit-open': 'failing',
  stopping: 'degraded',
  'key-suspect': 'degraded',
  'new-key-refused': 'degraded',
  'new-key-untried': 'degraded',
  'operation-circuit-open': 'degraded',
  'key-fallen-back': 'degraded',
  'key-store-failing': 'degraded',
  'gate-closed': 'degraded',
  'callers-waiting': 'degraded',
  'shared-store-away': 'degraded',
  'callers-file-refused': 'degraded',
  'logins-failing': 'degraded',
  'certificate-refused': 'degraded',
  'certificate-ending': 'degraded',
  'log-lines-lost': 'degraded',
  'token-ending': 'ok',
  'links-lead-past': 'ok',
} as const satisfies Record<string, Health>;

export type HealthCode = keyof typeof healthCodes;

export interface HealthReason {
  /** The workspace that it is about; null for the unnamed one, and for the gateway as a whole. */
  readonly workspace: string | null;
  readonly code: HealthCode;
  /** What is wrong, in one sentence. */
  readonly detail: string;
  /** What to do about it, in one sentence. */
  readonly todo: string;
  /** What lies behind it, in a word or a line, as ECONNREFUSED; null where the detail has all. */
  readonly cause: string | null;
}

export interface Verdict {
  /** As bad as the worst reason; `failing` only where every workspace fails. */
  readonly health: Health;
  /** The worst first. */
  readonly reasons: readonly HealthReason[];
}

type Says = Pick<HealthReason, 'detail' | 'todo'> & { readonly cause?: string | null };

/** A request that has waited this long at the gate is about to fail, or its caller to give up. */
const longWaitSeconds = 5;
/** A shorter closing is how the gate finds the upstream's pace: a second here and there, which no caller notices. */
const longClosingSeconds = 2;
/** A certificate is told of this long before it ends; one that holds for a few days in all only in the last quarter of them. */
const certificateNoticeMs = 7 * 86_400_000;
/** Lost log lines are told of for this long: what was lost stays lost. */
const lostLinesNoticeMs = 15 * 60_000;

/** A new key is tried within a moment where the upstream answers; one that is untried for longer is told of. */
const newKeyPatienceMs = 10_000;

/** The last keys of a company login serve for a day; an outage that lasts is told of before they end. */
const longOutageMs = 3_600_000;

/** How many names a sentence lists. */
const mostNamed = 5;

/** What may be wrong with one workspace. */
const workspaceJudges: Readonly<
  Partial<Record<HealthCode, (workspace: WorkspaceSnapshot, atMs: number) => Says | undefined>>
> = {
  'key-missing': keyMissing,
  'key-refused': keyRefused,
  'circuit-open': circuitOpen,
  'key-suspect': keySuspect,
  'new-key-refused': newKeyRefused,
  'new-key-untried': newKeyUntried,
  'operation-circuit-open': operationCircuitOpen,
  'key-fallen-back': keyFallenBack,
  'key-store-failing': keyStoreFailing,
  'gate-closed': gateClosed,
  'callers-waiting': callersWaiting,
  'links-lead-past': linksLeadPast,
};

/** What may be wrong with the gateway as a whole. */
const judges: Readonly<
  Partial<Record<HealthCode, (snapshot: AdminSnapshot, atMs: number) => Says | undefined>>
> = {
  stopping,
  'shared-store-away': sharedStoreAway,
  'callers-file-refused': callersFileRefused,
  'logins-failing': loginsFailing,
  'certificate-refused': certificateRefused,
  'certificate-ending': certificateEnding,
  'log-lines-lost': logLinesLost,
  'token-ending': tokenEnding,
};

/** What one snapshot says of the gateway. */
export function judgeHealth(snapshot: AdminSnapshot): Verdict {
  const atMs = Date.parse(snapshot.at);
  const reasons = (Object.keys(healthCodes) as HealthCode[]).flatMap((code): HealthReason[] => {
    const says = judges[code]?.(snapshot, atMs);
    return [
      ...(says === undefined ? [] : [{ workspace: null, code, cause: null, ...says }]),
      ...snapshot.workspaces.flatMap((one) => reasonOf(code, one, atMs) ?? []),
    ];
  });
  if (reasons.every(({ code }) => healthCodes[code] === 'ok')) return { health: 'ok', reasons };
  const failing = new Set(
    reasons.filter(({ code }) => healthCodes[code] === 'failing').map(({ workspace }) => workspace),
  );
  return { health: failing.size === snapshot.workspaces.length ? 'failing' : 'degraded', reasons };
}

function reasonOf(code: HealthCode, one: WorkspaceSnapshot, atMs: number): HealthReason | undefined {
  const says = workspaceJudges[code]?.(one, atMs);
  const { workspace } = one;
  if (says === undefined) return undefined;
  const detail = workspace === null ? says.detail : `${workspace}: ${says.detail}`;
  return { workspace, code, cause: null, ...says, detail };
}

function keyMissing({ key }: WorkspaceSnapshot): Says | undefined {
  if (key.loaded) return undefined;
  const why = key.reloadFailure === null ? '' : `: ${key.reloadFailure}`;
  return {
    detail: `No key is loaded yet${why}.`,
    todo: `Make ${key.source} give the key; the gateway asks it again by itself.`,
    cause: key.reloadFailure,
  };
}

function keyRefused({ key }: WorkspaceSnapshot): Says | undefined {
  if (!key.rejected) return undefined;
  return {
    detail: `The upstream refuses the key ${key.fingerprint} of ${key.source}; only key checks are sent with it.`,
    todo: 'Create a new key in the web application (API keys, action Create) and put it into the secret store.',
  };
}

function keySuspect({ key }: WorkspaceSnapshot): Says | undefined {
  if (!key.beside.suspect) return undefined;
  return {
    detail: `The upstream refused a read with the key ${key.fingerprint} of ${key.source}; the gateway finds out whether it refuses the key.`,
    todo: 'Nothing for two seconds; a key that is refused has the reason key-refused then.',
  };
}

function newKeyRefused({ key }: WorkspaceSnapshot): Says | undefined {
  const { newKey } = key;
  if (newKey?.standing !== 'refused') return undefined;
  if (key.rejected) {
    return {
      detail: `The upstream refuses the new key ${newKey.fingerprint} of the secret store as well.`,
      todo: 'Put a key into the secret store that the upstream accepts; it is used at once.',
    };
  }
  return {
    detail: `The upstream refuses the new key ${newKey.fingerprint} of the secret store; the key before (${key.fingerprint}) stays in use.`,
    todo: 'Put the right key into the secret store, or activate the new one at the upstream; do not revoke the key before until the log says "accepted".',
  };
}

function newKeyUntried({ key }: WorkspaceSnapshot, atMs: number): Says | undefined {
  const { newKey } = key;
  if (newKey?.standing !== 'untried' || atMs - Date.parse(newKey.since) < newKeyPatienceMs) return undefined;
  return {
    detail: `The upstream has not said yet whether it accepts the new key ${newKey.fingerprint} of the secret store; the key before (${key.fingerprint}) stays in use.`,
    todo: 'Look into the log for the upstream’s answer ("new-key-untried"); the new key is tried again by itself, at least every minute.',
  };
}

function circuitOpen({ circuit }: WorkspaceSnapshot): Says | undefined {
  if (circuit.state !== 'open') return undefined;
  return {
    detail: `The upstream is down: it failed ${times(circuit.failuresInARow)} in a row${circuit.lastFailure === null ? '' : ` (${circuit.lastFailure})`}. The next request${circuit.probeInSeconds > 0 ? ` in ${span(circuit.probeInSeconds)} or later` : ''} tries it again.`,
    todo: 'Run "analytics-gateway check" to see how it fails, and tell those who run the upstream.',
    cause: circuit.lastFailure,
  };
}

function stopping({ notReady }: AdminSnapshot): Says | undefined {
  if (notReady !== 'shutting down') return undefined;
  return {
    detail: `The gateway is not ready: ${notReady}.`,
    todo: 'Nothing, if it is to stop; else see who sent it SIGTERM.',
  };
}

function operationCircuitOpen({ circuit }: WorkspaceSnapshot): Says | undefined {
  const down = circuit.operations.filter(({ state }) => state === 'open');
  if (circuit.state === 'open' || down.length === 0) return undefined;
  const cause = [...new Set(down.flatMap(({ lastFailure }) => lastFailure ?? []))].join(', ');
  return {
    detail: `The upstream fails for ${names(down.map(({ operation }) => operation))}${cause === '' ? '' : ` (${cause})`}, and answers other operations.`,
    todo: 'Look into the log for the upstream’s status, and tell those who run the upstream.',
    cause: cause || null,
  };
}

function keyFallenBack({ key }: WorkspaceSnapshot): Says | undefined {
  if (!key.fallenBack) return undefined;
  return {
    detail: `The upstream refuses the newest key of the store and accepts the previous one (${key.source}).`,
    todo: 'Activate the newest key at the upstream, or put the right one into the secret store.',
  };
}

function keyStoreFailing({ key }: WorkspaceSnapshot): Says | undefined {
  if (key.reloadFailure === null || !key.loaded) return undefined;
  return {
    detail: `The secret store gives no valid key, so a rotation would not be seen; the last key stays. ${key.reloadFailure}.`,
    todo: 'Repair the secret store or its value; the gateway asks it again by itself.',
    cause: key.reloadFailure,
  };
}

function gateClosed({ gate }: WorkspaceSnapshot): Says | undefined {
  if (gate.closedForSeconds < longClosingSeconds) return undefined;
  const why = gate.state === 'closed' ? 'limits requests (429)' : 'says that little is left of its limit';
  return {
    detail: `The upstream ${why}; the gate is closed for another ${span(gate.closedForSeconds)}.`,
    todo: 'Wait; where it happens often, see which caller asks most, give it a limit ("analytics-gateway token set NAME --limit 20/1s"), or raise CACHE_TTL.',
  };
}

function callersWaiting({ gate }: WorkspaceSnapshot): Says | undefined {
  const long = gate.callers
    .filter(({ oldestWaitSeconds }) => oldestWaitSeconds >= longWaitSeconds)
    .toSorted((one, other) => other.oldestWaitSeconds - one.oldestWaitSeconds);
  const [longest] = long;
  if (longest === undefined) return undefined;
  return {
    detail: `Requests of ${names(long.map(({ name }) => name))} wait long for the upstream’s limit, the longest for ${span(longest.oldestWaitSeconds)}.`,
    todo: 'See which caller asks most and give it a limit or a smaller weight ("analytics-gateway token set NAME --limit 20/1s --weight 0.5"), or raise CACHE_TTL.',
  };
}

function linksLeadPast({ links }: WorkspaceSnapshot): Says | undefined {
  if (!links.leadPast) return undefined;
  return {
    detail: 'Answers name the upstream’s address: a caller that follows it sends its token past the gateway.',
    todo: 'Set PUBLIC_BASE_URL to the address that callers use.',
  };
}

function sharedStoreAway({ sharedStore }: AdminSnapshot): Says | undefined {
  if (sharedStore === null || sharedStore.inUse) return undefined;
  const { address, reason } = sharedStore;
  return {
    detail: `The shared store ${address} cannot be used (${reason ?? 'no connection yet'}); this gateway works by itself meanwhile.`,
    todo: 'Look after the server that SHARED_STORE names; the gateway connects again by itself.',
    cause: reason,
  };
}

function callersFileRefused({ callers }: AdminSnapshot): Says | undefined {
  const [first, ...more] = callers.problems;
  if (first === undefined) return undefined;
  const rest = more.length === 0 ? '' : ` (and ${more.length} more)`;
  return {
    detail: `The newest version of the callers file is refused, so the one before is in force: ${first}${rest}.`,
    todo: 'Correct the file; "analytics-gateway token list" lists everything that is wrong with it.',
  };
}

function loginsFailing({ callers }: AdminSnapshot, atMs: number): Says | undefined {
  const dead = callers.beside.logins.flatMap((login) => {
    const why = whyLoginsFail(login, atMs);
    return why === undefined ? [] : [`of ${names(login.callers)}: ${why}`];
  });
  if (dead.length === 0) return undefined;
  return {
    detail: `Company logins ${dead.slice(0, mostNamed).join('; ')}. Static tokens work on.`,
    todo: 'See that the address of "jwks" in the callers file is right and that this machine reaches it: "analytics-gateway check" tries it. It is asked again by itself every 30 s.',
  };
}

/** `undefined` where nothing keeps the logins of this key set from working. */
function whyLoginsFail({ address, keys, failure, failingSince, servesUntil }: LoginKeys, atMs: number) {
  if (failure !== undefined && (servesUntil === undefined || servesUntil <= atMs)) {
    return `all get 401, because the keys at ${address} cannot be fetched (${failure})`;
  }
  if (failure !== undefined && servesUntil !== undefined && atMs - (failingSince ?? atMs) >= longOutageMs) {
    return `all get 401 from ${new Date(servesUntil).toISOString()} on, because the keys at ${address} cannot be fetched (${failure})`;
  }
  return keys === 0 ? `all get 401, because the key set at ${address} has no key for signatures` : undefined;
}

function certificateRefused({ beside: { certificate } }: AdminSnapshot): Says | undefined {
  if (certificate?.problem === undefined) return undefined;
  return {
    detail: `The newest certificate for callers cannot be used, so the one before is in force: ${certificate.problem}.`,
    todo: 'Correct the files of TLS_CERT_FILE and TLS_KEY_FILE; they are read again when they change.',
  };
}

function certificateEnding({ beside: { certificate } }: AdminSnapshot, atMs: number): Says | undefined {
  if (certificate === undefined) return undefined;
  const { validFrom, validTo } = certificate;
  if (validTo - atMs > Math.min(certificateNoticeMs, (validTo - validFrom) / 4)) return undefined;
  return {
    detail: `The certificate for callers ${validTo <= atMs ? 'has ended' : 'ends'} at ${new Date(validTo).toISOString()}.`,
    todo: 'Put a new pair into the files of TLS_CERT_FILE and TLS_KEY_FILE; it is in force without a restart.',
  };
}

function logLinesLost({ log }: AdminSnapshot, atMs: number): Says | undefined {
  if (log.lastLostAt === null || atMs - Date.parse(log.lastLostAt) > lostLinesNoticeMs) return undefined;
  return {
    detail: `Log lines were lost (${log.lostLines} since the start), because standard output is not read or its disk is full.`,
    todo: 'Look after the program or disk that takes the log.',
  };
}

function tokenEnding({ callers }: AdminSnapshot, atMs: number): Says | undefined {
  const { ending } = callers.beside;
  const [caller] = ending?.names ?? [];
  if (ending === undefined || caller === undefined) return undefined;
  const when = `the first ${Date.parse(ending.first) <= atMs ? 'has ended' : 'ends'} at ${ending.first}`;
  return {
    detail: `Tokens of ${ending.names.join(', ')} end within 14 days, or have ended: ${when}.`,
    todo: `Run "analytics-gateway token create ${caller}", and so for each, and hand the new token over; "token revoke" takes away an old one that is not used any more.`,
  };
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

function span(seconds: number): string {
  if (seconds < 120) return `${Math.ceil(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

function names(all: readonly string[]): string {
  const rest = all.length - mostNamed;
  return all.slice(0, mostNamed).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
}
