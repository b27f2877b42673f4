/**
 * What each workspace has of its own: its key, and its way to the upstream with cache, flights, retries, circuit and
 * gate. Nothing of one workspace is seen, waited for or spent by another; `gateway/parts.ts` makes what is one for all.
 */
import type { Config } from '../config/config.ts';
import { variableOf, type WorkspaceConfig } from '../config/workspaces.ts';
import { type Evictable, FairBytes } from '../exchange/fair-share.ts';
import type { AttemptSpans } from '../exchange/trace.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { KeyEvent } from '../key/key-event.ts';
import { type Keyring, openKeyring } from '../key/keyring.ts';
import type { Scrubber } from '../key/scrub.ts';
import type { Environment } from '../key/store.ts';
import { logKeyCheck } from '../log/event-lines.ts';
import type { GatewayLogger } from '../log/logger.ts';
import { createPipeline, type Pipeline } from '../pipeline.ts';
import { checkKey } from '../upstream/own-reads.ts';
import { AttemptSlots, ConnectionCap, SharedBudget } from '../upstream/shared-limits.ts';
import {
  bodyBudget,
  cacheOptions,
  connectionBudget,
  gateOptions,
  retryOptions,
  transportOptions,
} from './options.ts';

/** A workspace whose key's store is open. */
export interface KeyedWorkspace {
  readonly own: WorkspaceConfig;
  readonly keyring: Keyring;
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
  const { name, keyFrom: from, previousKeyFrom: previousFrom } = own;
  const events = name === '' ? log.events : log.events.child({ workspace: name });
  const keyring = await openKeyring({
    ...{ from, previousFrom, environment, scrub },
    // The process ends where no workspace has a key; else this one is asked again.
    goesOn: config.workspaces.length > 1,
    settings: {
      from: variableOf('UPSTREAM_API_KEY_FROM', name),
      previousFrom: variableOf('UPSTREAM_API_KEY_PREVIOUS_FROM', name),
    },
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    longestAnswerMs: config.UPSTREAM_TIMEOUT,
    triesNewKeys: config.UPSTREAM_API_KEY_CHECK === 'on',
    onEvent({ level, message, ...fields }: KeyEvent) {
      events[level](fields, message);
      onKeyEvent();
    },
  });
  return { own, keyring, events };
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

export function createBounds(config: Config): Bounds {
  const bodies = bodyBudget(config);
  const connections = connectionBudget(config);
  return {
    cache: config.workspaces.length === 1 ? undefined : new FairBytes(config.CACHE_MAX_BYTES),
    bodies: new SharedBudget(bodies.own, bodies.common),
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
  const pipeline = createPipeline({
    cache: {
      ...cacheOptions(config),
      sharedBytes: bounds.cache,
      shared: fleet?.reads,
      generation: keyring.generation,
      onBackground: (event) => events.debug(event, 'refreshed in the background'),
    },
    retry: retryOptions(config),
    circuit: {
      onChange: (change) => events.warn(change, `the circuit to the upstream is ${change.to}`),
    },
    gate: {
      ...gateOptions(config, own, connections),
      makeScheduler: fleet?.makeScheduler,
      onIgnored: (field) =>
        events.info({ field }, 'the upstream’s field does not tell what is left of its limit: it is ignored'),
      onChange: ({ from, to, closedForMs, statedWaitMs, perSecond, waiting }) =>
        events.info({ from, to, closedForMs, statedWaitMs, perSecond, waiting }, 'gate state changed'),
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
  return { ...keyed, pipeline, fleet };
}

/**
 * Why a gateway with these workspaces is not ready; `undefined` where it is: each has its key, or some have and the
 * others' stores gave none in time. One store that is down must not keep the others' callers away.
 */
export function missingKeys(workspaces: readonly Workspace[]): string | undefined {
  const missing = workspaces.filter(({ keyring }) => keyring.current === undefined);
  const isWorthWaiting =
    missing.length === workspaces.length || missing.some(({ keyring }) => keyring.mayCome);
  if (missing.length === 0 || !isWorthWaiting) return undefined;
  return workspaces.length === 1 ? 'no key is loaded yet' : 'a key is not loaded yet';
}

/** Reads once with the key, and logs what comes of it. @returns how to end that before its time */
export function startKeyCheck({ keyring, pipeline, events }: Workspace, timeoutMs: number): () => void {
  const check = checkKey(pipeline.send, keyring.ready, timeoutMs);
  void logKeyCheck(events, check.outcome, keyring.firstRefusal);
  return check.end;
}
