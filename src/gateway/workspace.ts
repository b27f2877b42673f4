/**
 * What each workspace has of its own: its key, and its way to the upstream with cache, flights, retries, circuit and
 * gate. Nothing of one workspace is seen, waited for or spent by another; `gateway/parts.ts` makes what is one for all.
 */

import type { Config } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { keyPlaces, usedLimits, type WorkspaceConfig } from '../config/workspaces.ts';
import { baseOfWorkspace } from '../edge/operation.ts';
import { fieldsDown } from '../edge/reply-fields.ts';
import { type Evictable, FairBytes } from '../exchange/fair-share.ts';
import { type ProxySettings, proxyFor } from '../exchange/proxy.ts';
import type { AttemptSpans } from '../exchange/trace.ts';
import type { Fleet, StoreOptions } from '../fleet/fleet.ts';
import type { KeyEvent } from '../key/key-event.ts';
import type { KeyCheck } from '../key/key-monitor.ts';
import { type Keyring, openKeyring } from '../key/keyring.ts';
import type { Scrubber } from '../key/scrub.ts';
import { logKeyCheck } from '../log/event-lines.ts';
import type { GatewayLogger } from '../log/logger.ts';
import { createPipeline, type Pipeline } from '../pipeline.ts';
import { AttemptSlots, ConnectionCap, SharedBudget } from '../upstream/budgets.ts';
import { checkKeyAtStart } from '../upstream/credential.ts';
import type { TransportOptions } from '../upstream/transport.ts';
import { version } from '../version.ts';

/** A workspace whose key's store is open. */
export interface KeyedWorkspace {
  readonly own: WorkspaceConfig;
  readonly keyring: Keyring;
  /** How to check a key: through the gate, which is made after the keyring. */
  readonly keyCheck: PromiseWithResolvers<KeyCheck>;
  /** Every line of the log that is about this workspace alone. */
  readonly events: GatewayLogger['events'];
}

export interface Workspace extends KeyedWorkspace {
  readonly pipeline: Pipeline;
  /** What is shared with other gateways; `undefined` without `SHARED_STORE`. */
  readonly fleet: Fleet | undefined;
}

export interface OpenKeysOptions {
  readonly config: Config;
  readonly environment: Environment;
  readonly log: GatewayLogger;
  /** Searches for the keys of all workspaces. */
  readonly scrub: Scrubber;
}

/**
 * Opens the key's store of each workspace, all at once.
 *
 * @throws KeyStoreError of a store, once every store was opened or has failed
 */
export async function openKeys(options: OpenKeysOptions): Promise<readonly KeyedWorkspace[]> {
  const { workspaces } = options.config;
  const equal = new EqualKeys();
  const opened = await Promise.allSettled(workspaces.map((own) => openKey(own, options, () => equal.look())));
  const keyed = opened.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const failed = opened.find((one) => one.status === 'rejected');
  if (failed === undefined) {
    equal.follow(keyed);
    return keyed;
  }
  for (const { keyring } of keyed) keyring.close();
  throw failed.reason;
}

async function openKey(
  own: WorkspaceConfig,
  { config, environment, log, scrub }: OpenKeysOptions,
  onKeyEvent: () => void,
): Promise<KeyedWorkspace> {
  const { name } = own;
  const events = name === '' ? log.events : log.events.child({ workspace: name });
  const keyCheck = Promise.withResolvers<KeyCheck>();
  const keyring = await openKeyring({
    ...keyPlaces(own),
    check: async (key, read) => (await keyCheck.promise)(key, read),
    environment,
    scrub,
    // The process ends where no workspace has a key; else this one is asked again.
    retriesForever: config.workspaces.length > 1,
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    longestAnswerMs: config.UPSTREAM_TIMEOUT,
    triesNewKeys: config.UPSTREAM_API_KEY_CHECK === 'on',
    onEvent({ level, message, ...fields }: KeyEvent) {
      events[level](fields, message);
      onKeyEvent();
    },
  });
  return { own, keyring, keyCheck, events };
}

/** Warns once of workspaces whose keys are equal: one of them has the key of another. */
class EqualKeys {
  #keyed: readonly KeyedWorkspace[] = [];
  #told: ReadonlySet<string> = new Set();

  follow(keyed: readonly KeyedWorkspace[]): void {
    this.#keyed = keyed;
    this.look();
  }

  look(): void {
    const known = this.#keyed.filter(({ keyring }) => keyring.current !== undefined);
    const alike = [...Map.groupBy(known, ({ keyring }) => keyring.current?.fingerprint).values()].filter(
      (group) => group.length > 1,
    );
    const told = new Set<string>();
    for (const group of alike) {
      const names = group.map(({ own }) => own.name || '(unnamed)').join(', ');
      told.add(names);
      if (this.#told.has(names)) continue;
      group[0]?.events.warn(
        { workspaces: names, fingerprint: group[0].keyring.current?.fingerprint },
        'workspaces have the same key: one of them has the key of another',
      );
    }
    this.#told = told;
  }
}

/** What all workspaces have together: bytes in the cache, answers in flight, attempts at once. */
export interface Bounds {
  /** `undefined` for one workspace, which has all of them. */
  readonly cache: FairBytes<Evictable> | undefined;
  readonly bodies: SharedBudget;
  readonly connections: SharedBudget;
  /** `undefined` for one workspace. */
  readonly cap: ConnectionCap | undefined;
}

/** @param most attempts at once that the descriptors of the process allow */
export function createBounds(config: Config, bodyBytes: number, most: number): Bounds {
  const bodies = bodyBudget(config, bodyBytes);
  const { workspaces, UPSTREAM_CONNECTIONS: wanted } = config;
  const connections = connectionBudget({ workspaces, UPSTREAM_CONNECTIONS: Math.min(wanted, most) });
  return {
    cache: config.workspaces.length === 1 ? undefined : new FairBytes(config.CACHE_MAX_BYTES),
    bodies: new SharedBudget(bodies.own, bodies.common, bodies.mostCommon),
    connections: new SharedBudget(connections.own, connections.common),
    cap: config.workspaces.length === 1 ? undefined : new ConnectionCap(connections.all),
  };
}

export interface Surroundings {
  /** The other gateways that serve this workspace; `undefined` where this gateway is alone. */
  readonly fleet: Fleet | undefined;
  /** Makes a span of each attempt; `undefined` where no spans are made. */
  readonly spans: AttemptSpans | undefined;
}

export function createWorkspace(
  keyed: KeyedWorkspace,
  config: Config,
  bounds: Bounds,
  { fleet, spans }: Surroundings,
): Workspace {
  const { own, keyring, events } = keyed;
  const connections = bounds.connections.mostEach;
  const isAlone = config.workspaces.length === 1;
  const passing = fieldsDown(config);
  const pipeline = createPipeline({
    cache: {
      passesDown: (field) => passing.has(field),
      ttlMs: config.CACHE_TTL,
      staleWhileRevalidateMs: config.CACHE_STALE_WHILE_REVALIDATE,
      staleIfErrorMs: config.CACHE_STALE_IF_ERROR,
      maxBytes: config.CACHE_MAX_BYTES,
      maxEntryBytes: config.CACHE_MAX_ENTRY_BYTES,
      refreshTimeoutMs: config.REQUEST_TIMEOUT,
      sharedBytes: bounds.cache,
      shared: fleet?.reads,
      generation: keyring.generation,
      onBackground: (event) => events.debug(event, 'refreshed in the background'),
    },
    links: {
      upstream: own.baseUrl,
      path: baseOfWorkspace(own.name),
      publicBase: config.PUBLIC_BASE_URL,
      maxBodyBytes: config.UPSTREAM_MAX_BODY,
      onNamed: () =>
        events.warn(
          {},
          'answers name the upstream’s address: callers that follow it send their token past the gateway; set PUBLIC_BASE_URL',
        ),
    },
    retry: { limit: config.RETRY_LIMIT, baseMs: config.RETRY_BASE, capMs: config.RETRY_CAP },
    circuit: {
      onChange: (change) => events.warn(change, `the circuit to the upstream is ${change.to}`),
    },
    gate: {
      limits: usedLimits(own, config.UPSTREAM_LIMIT_RESERVE),
      maxClosedMs: config.GATE_MAX_CLOSED,
      baseMs: config.RETRY_BASE,
      capMs: config.RETRY_CAP,
      maxInFlight: connections,
      limitFields: config.UPSTREAM_LIMIT_HEADERS,
      makeScheduler: fleet?.makeScheduler,
      onIgnored: (field) =>
        events.info({ field }, 'the upstream’s field does not tell what is left of its limit: it is ignored'),
      onChange: ({ from, to, closedForSeconds, statedWaitSeconds, attemptsPerSecond, waiting }) => {
        const [closedForMs, statedWaitMs] = [closedForSeconds, statedWaitSeconds].map((one) =>
          Math.round(one * 1_000),
        );
        const perSecond = attemptsPerSecond ?? undefined;
        events.info({ from, to, closedForMs, statedWaitMs, perSecond, waiting }, 'gate state changed');
      },
    },
    keyring,
    transport: {
      ...transportOptions(config, own, connections),
      spans,
      bodies: bounds.bodies.join(),
      cap: bounds.cap,
      slots: isAlone ? undefined : new AttemptSlots(bounds.connections.join()),
    },
  });
  keyed.keyCheck.resolve(pipeline.checkKey);
  return { ...keyed, pipeline, fleet };
}

/**
 * Why a gateway with these workspaces is not ready; `undefined` where it is: each has its key, or some have and the
 * others' stores gave none in time. One store that is down must not keep the others' callers away.
 */
export function missingKeys(workspaces: readonly Workspace[]): string | undefined {
  const missing = workspaces.filter(({ keyring }) => keyring.current === undefined);
  const isWorthWaiting =
    missing.length === workspaces.length || missing.some(({ keyring }) => keyring.isAwaited);
  if (missing.length === 0 || !isWorthWaiting) return undefined;
  return workspaces.length === 1 ? 'no key is loaded yet' : 'a key is not loaded yet';
}

/** Reads once with the key, and logs what comes of it. @returns how to end that before its time */
export function startKeyCheck({ keyring, pipeline, events }: Workspace, timeoutMs: number): () => void {
  const check = checkKeyAtStart(pipeline.send, keyring.ready, timeoutMs);
  void logKeyCheck(events, check.outcome, keyring.firstRefusal);
  return check.end;
}

/**
 * Attempts at once, of all workspaces together. Half of them belong to the workspaces in equal parts, at least one to
 * each; so many workspaces that one each is more than half make it more.
 */
export function connectionBudget(config: Pick<Config, 'UPSTREAM_CONNECTIONS' | 'workspaces'>): {
  own: number;
  common: number;
  all: number;
} {
  const { UPSTREAM_CONNECTIONS: most, workspaces } = config;
  if (workspaces.length === 1) return { own: most, common: 0, all: most };
  const own = Math.max(1, Math.floor(most / 2 / workspaces.length));
  const common = Math.max(most - own * workspaces.length, Math.ceil(most / 2));
  return { own, common, all: own * workspaces.length + common };
}

/**
 * Bytes of answers in flight, of all workspaces together, however many they are: half of them belong to the workspaces in
 * equal parts. Of what is common one workspace leaves the others room for the largest answer there may be.
 */
export function bodyBudget(
  { UPSTREAM_MAX_BODY: largest, workspaces }: Pick<Config, 'UPSTREAM_MAX_BODY' | 'workspaces'>,
  bytes: number,
): { own: number; common: number; mostCommon: number } {
  const half = Math.max(bytes / 2, largest);
  if (workspaces.length === 1) return { own: half, common: half, mostCommon: half };
  const common = Math.max(bytes / 2, 2 * largest);
  return { own: bytes / 2 / workspaces.length, common, mostCommon: common - largest };
}

/** How the upstream is reached with these settings, for one workspace. */
export function transportOptions(
  config: Pick<
    Config,
    'UPSTREAM_TIMEOUT' | 'UPSTREAM_MAX_BODY' | 'UPSTREAM_MEDIA_TYPES' | 'UPSTREAM_LIMIT_HEADERS'
  > &
    ProxySettings,
  { baseUrl }: Pick<WorkspaceConfig, 'baseUrl'>,
  connections: number,
): Omit<TransportOptions, 'bodies' | 'slots'> {
  return {
    baseUrl,
    timeoutMs: config.UPSTREAM_TIMEOUT,
    maxBodyBytes: config.UPSTREAM_MAX_BODY,
    connections,
    mediaTypes: config.UPSTREAM_MEDIA_TYPES,
    limitFields: config.UPSTREAM_LIMIT_HEADERS,
    proxy: proxyFor(config),
    userAgent: `workspace-analytics-gateway/${version}`,
  };
}

/** How the store is reached that gateways with these settings share; `undefined` where there is none. */
export function storeOptions(
  config: Pick<
    Config,
    | 'SHARED_STORE'
    | 'SHARED_STORE_PASSWORD_FROM'
    | 'SHARED_STORE_PREFIX'
    | 'SHARED_STORE_SENTINEL_PASSWORD_FROM'
  >,
  environment: StoreOptions['environment'],
): StoreOptions | undefined {
  if (config.SHARED_STORE === undefined) return undefined;
  return {
    address: config.SHARED_STORE,
    passwordFrom: config.SHARED_STORE_PASSWORD_FROM,
    sentinelPasswordFrom: config.SHARED_STORE_SENTINEL_PASSWORD_FROM,
    prefix: config.SHARED_STORE_PREFIX,
    environment,
  };
}
