/**
 * What the admin listener shows. Each part of the gateway gives its own part of the `/status` document; metrics, verdict,
 * console and charts read that. What a part has for these alone stands in its member `beside`, which no document shows.
 */
import { performance } from 'node:perf_hooks';
import type { CacheSnapshot } from '../cache/cache.ts';
import type { CallerSnapshot, CallersSnapshot } from '../callers/callers-snapshot.ts';
import type { CertificateSnapshot } from '../edge/certificate.ts';
import { toSeconds, toTime } from '../exchange/figures.ts';
import type { FleetSnapshot } from '../fleet/fleet.ts';
import type { GateSnapshot } from '../gate/scheduler.ts';
import type { KeyHealth } from '../key/key-event.ts';
import type { AttemptSnapshot } from '../upstream/attempt-tally.ts';
import type { CircuitSnapshot } from '../upstream/circuit.ts';
import type { LinksSnapshot } from '../upstream/links.ts';
import { type CallerCount, otherCallers, sumByCaller } from './caller-counts.ts';
import type { RequestSnapshot } from './request-counts.ts';

/** What a gateway is asked for; nothing here changes it but `purge`. */
export interface AdminSources {
  readonly version: string;
  /** Wall clock, ms. */
  readonly startedAt: number;
  /** By the clock that cannot be set: ms. */
  readonly startedMs: number;
  /** Names of the operations that callers may make. */
  readonly operations: readonly string[];
  /** Names of the settings whose value is not the default. */
  readonly settings: readonly string[];
  /** Why the gateway is not ready; `undefined` when it is. */
  notReady(): string | undefined;
  requests(): RequestSnapshot;
  /** The unnamed one first. At least one. */
  readonly workspaces: readonly WorkspaceSources[];
  /** @param most how many of them to describe */
  callers(most: number): CallersSnapshot;
  log(): LogSnapshot;
  /** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
  certificate(): CertificateSnapshot | undefined;
  /** What this gateway shares with others; `undefined` where it is alone by its settings. */
  fleet(): FleetSnapshot | undefined;
  /** Requests that wait for the upstream. */
  waiting(): number;
  /** Open connections of callers. */
  connections(): Promise<number>;
}

export interface WorkspaceSources {
  /** Empty for the unnamed workspace. */
  readonly name: string;
  key(): KeyHealth;
  upstream(): AttemptSnapshot;
  gate(): GateSnapshot;
  circuit(): CircuitSnapshot;
  cache(): CacheSnapshot;
  links(): LinksSnapshot;
  /** Removes stored answers, all or those of one operation. Returns how many reads were stored. */
  purge(operation: string | undefined): number;
}

/** A member of `workspaces`. */
export interface WorkspaceSnapshot {
  /** Null for the unnamed one. */
  readonly workspace: string | null;
  readonly key: KeyHealth;
  readonly upstream: AttemptSnapshot;
  readonly gate: GateSnapshot;
  readonly circuit: CircuitSnapshot;
  readonly cache: CacheSnapshot;
  readonly links: LinksSnapshot;
}

/** Log lines that could not be written, since the start. */
interface LogSnapshot {
  readonly lostLines: number;
  readonly lastLostAt: string | null;
}

interface ProcessSnapshot {
  readonly cpuSeconds: number;
  readonly residentBytes: number;
  readonly eventLoopBusySeconds: number;
  /** The delay of the event loop when the snapshot was taken. */
  readonly eventLoopLagSeconds: number;
  readonly beside: { readonly eventLoopIdleSeconds: number };
}

/** The document but for the verdict on it and with all workspaces in `workspaces`, also a single one. */
export interface AdminSnapshot {
  readonly version: string;
  readonly node: string;
  readonly at: string;
  readonly startedAt: string;
  readonly uptimeSeconds: number;
  readonly ready: boolean;
  readonly notReady: string | null;
  readonly requests: RequestSnapshot & { readonly waiting: number; readonly connections: number };
  /** The unnamed one first. At least one. */
  readonly workspaces: readonly WorkspaceSnapshot[];
  readonly callers: Omit<CallersSnapshot, 'list'> & {
    /** Requests are null where they are counted among the others. */
    readonly list: readonly (CallerSnapshot & { readonly requests: number | null })[];
  };
  readonly sharedStore: FleetSnapshot | null;
  readonly log: LogSnapshot;
  readonly process: ProcessSnapshot;
  readonly operations: readonly string[];
  readonly settings: readonly string[];
  readonly beside: { readonly certificate: CertificateSnapshot | undefined };
}

/**
 * Reads everything at one moment: for each request, and every five seconds for the history.
 *
 * @param describedCallers how many callers to describe; they are counted in any case
 */
export async function takeSnapshot(sources: AdminSources, describedCallers: number): Promise<AdminSnapshot> {
  // Before the next await, so that waiting for it is not counted as lag.
  const lagMs = await loopLagMs();
  const connections = await sources.connections();
  const { user, system } = process.cpuUsage();
  const { active, idle } = performance.eventLoopUtilization();
  const now = Date.now();
  const notReady = sources.notReady() ?? null;
  const requests = sources.requests();
  return {
    version: sources.version,
    node: process.version,
    at: toTime(now),
    startedAt: toTime(sources.startedAt),
    uptimeSeconds: toSeconds(performance.now() - sources.startedMs),
    ready: notReady === null,
    notReady,
    requests: { ...requests, waiting: sources.waiting(), connections },
    workspaces: sources.workspaces.map((one) => ({
      workspace: one.name || null,
      key: one.key(),
      upstream: one.upstream(),
      gate: one.gate(),
      circuit: one.circuit(),
      cache: one.cache(),
      links: one.links(),
    })),
    callers: withRequests(sources.callers(describedCallers), requests.beside.callers),
    sharedStore: sources.fleet() ?? null,
    log: sources.log(),
    process: {
      cpuSeconds: (user + system) / 1e6,
      residentBytes: process.memoryUsage.rss(),
      eventLoopBusySeconds: active / 1_000,
      eventLoopLagSeconds: lagMs / 1_000,
      beside: { eventLoopIdleSeconds: idle / 1_000 },
    },
    operations: sources.operations,
    settings: sources.settings,
    beside: { certificate: sources.certificate() },
  };
}

/** The same snapshot, with one workspace, its requests and its callers alone. */
export function snapshotOfOne(snapshot: AdminSnapshot, name: string): AdminSnapshot {
  const isMeant = ({ workspace }: { readonly workspace: string | null }): boolean =>
    (workspace ?? '') === name;
  const { requests, callers } = snapshot;
  const { durations, callers: counts, problems, ...beside } = requests.beside;
  const workspaces = snapshot.workspaces.filter(isMeant);
  const own = {
    ...requests,
    waiting: workspaces.reduce((sum, { gate }) => sum + gate.waiting, 0),
    counts: requests.counts.filter(isMeant),
    recentProblems: requests.recentProblems.filter(isMeant),
    problemGroups: requests.problemGroups.filter(isMeant),
    beside: {
      ...beside,
      durations: durations.filter(isMeant),
      callers: counts.filter(isMeant),
      problems: problems.filter(isMeant),
    },
  };
  const list = callers.list.filter((one) => one.workspaces.includes(name || null));
  return {
    ...snapshot,
    workspaces,
    requests: own,
    callers: withRequests({ ...callers, list }, own.beside.callers),
  };
}

function withRequests(callers: CallersSnapshot, counts: readonly CallerCount[]): AdminSnapshot['callers'] {
  const counted = new Map(
    sumByCaller(counts).map(({ caller, classes }) => [
      caller,
      classes.reduce((sum, count) => sum + count, 0),
    ]),
  );
  const uncounted = counted.has(otherCallers) ? null : 0;
  return {
    ...callers,
    list: callers.list.map((one) => ({ ...one, requests: counted.get(one.name) ?? uncounted })),
  };
}

/** From now to the next turn of the event loop: how long a request that arrives now waits before it is read. */
async function loopLagMs(): Promise<number> {
  const startedMs = performance.now();
  await new Promise((resolve) => setImmediate(resolve));
  return performance.now() - startedMs;
}
