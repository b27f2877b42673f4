/** What the admin listener shows, as functions that read it. It holds no state, and changes only what `purge` removes. */
import type { CacheSnapshot } from '../cache/cache.ts';
import type { CallersSnapshot } from '../callers/callers-snapshot.ts';
import type { CertificateSnapshot } from '../edge/certificate.ts';
import type { DurationsSnapshot } from '../exchange/durations.ts';
import type { FleetSnapshot } from '../fleet/fleet.ts';
import type { GateSnapshot } from '../gate/types.ts';
import type { KeyHealth } from '../key/key-event.ts';
import type { AttemptSnapshot } from '../upstream/attempt-tally.ts';
import type { CircuitSnapshot } from '../upstream/circuit.ts';
import type { ShownGate } from './gate-queue.ts';
import type { RequestSnapshot } from './request-counts.ts';

export interface AdminSources {
  readonly version: string;
  /** Wall clock, ms. */
  readonly startedAt: number;
  /** Names of the operations that callers may make. */
  readonly operations: readonly string[];
  /** Names of the settings whose value is not the default. */
  readonly changedSettings: readonly string[];
  /** Why the gateway is not ready; `undefined` when it is. */
  notReady(): string | undefined;
  requests(): RequestSnapshot;
  /** The unnamed one first. At least one. */
  readonly workspaces: readonly WorkspaceSources[];
  /** @param most how many of them to describe */
  callers(most: number): CallersSnapshot;
  log(): LogLosses;
  /** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
  certificate(): CertificateSnapshot | undefined;
  /** What this gateway shares with others; `undefined` where it is alone by its settings. */
  fleet(): FleetSnapshot | undefined;
  /** Requests that wait for the upstream. */
  waiting(): number;
  /** Open connections of callers. */
  connections(): Promise<number>;
}

/** What is shown of one workspace. */
export interface WorkspaceSources {
  /** Empty for the unnamed workspace. */
  readonly name: string;
  key(): KeyHealth;
  gate(): GateSnapshot;
  circuit(): CircuitSnapshot;
  cache(): CacheSnapshot;
  attempts(): AttemptSnapshot;
  /** Removes stored answers, all or those of one operation. Returns how many reads were stored. */
  purge(operation: string | undefined): number;
}

/** The state of one workspace. */
export interface WorkspaceSnapshot {
  readonly name: string;
  readonly key: KeyHealth;
  readonly gate: ShownGate;
  readonly circuit: CircuitSnapshot;
  readonly cache: CacheSnapshot;
  readonly attempts: AttemptSnapshot;
}

/** Log lines that could not be written, since the start. */
export interface LogLosses {
  readonly lostLines: number;
  /** Wall clock, ms; `undefined` where no line was lost. */
  readonly lastLostAt: number | undefined;
}

/** What other programs on Node show of their process too. */
export interface ProcessSnapshot {
  readonly cpuUserSeconds: number;
  readonly cpuSystemSeconds: number;
  /** `undefined` where the system does not show them. */
  readonly virtualBytes: number | undefined;
  readonly dataBytes: number | undefined;
  readonly openDescriptors: number | undefined;
  readonly maxDescriptors: number | undefined;
  readonly heapTotalBytes: number;
  readonly heapUsedBytes: number;
  readonly externalBytes: number;
  readonly heapSpaces: readonly {
    readonly space: string;
    readonly totalBytes: number;
    readonly usedBytes: number;
    readonly availableBytes: number;
  }[];
  /** What keeps the event loop alive, by kind. */
  readonly activeResources: ReadonlyMap<string, number>;
}

/** What the metrics alone show: it costs too much to be read for each status. Lags in seconds. */
export interface RuntimeSnapshot {
  readonly process: ProcessSnapshot;
  /** Runs of the garbage collector. */
  readonly collections: readonly { readonly kind: string; readonly durations: DurationsSnapshot }[];
  /** Delays of the event loop since the last look; `undefined` where none was measured yet. */
  readonly lag:
    | Readonly<Record<'min' | 'max' | 'mean' | 'stddev' | 'p50' | 'p90' | 'p99', number>>
    | undefined;
}

/** The state of the gateway and of its process at one moment. */
export interface AdminSnapshot {
  readonly version: string;
  readonly nodeVersion: string;
  /** Wall clock, ms. */
  readonly at: number;
  readonly startedAt: number;
  readonly notReady: string | undefined;
  readonly requests: RequestSnapshot;
  /** The unnamed one first. At least one. */
  readonly workspaces: readonly WorkspaceSnapshot[];
  readonly callers: CallersSnapshot;
  readonly log: LogLosses;
  readonly certificate: CertificateSnapshot | undefined;
  readonly fleet: FleetSnapshot | undefined;
  readonly waiting: number;
  readonly connections: number;
  readonly cpuSeconds: number;
  readonly residentBytes: number;
  /** How long the event loop was busy and idle since the start, in seconds. */
  readonly loopBusySeconds: number;
  readonly loopIdleSeconds: number;
  /** The delay of the event loop when the snapshot was taken, in seconds. */
  readonly loopLagSeconds: number;
}

/** The same snapshot, with one workspace and its requests alone. */
export function snapshotOfOne(snapshot: AdminSnapshot, name: string): AdminSnapshot {
  const isMeant = ({ workspace = '' }: { readonly workspace?: string | undefined }): boolean =>
    workspace === name;
  const { requests, durations, recentProblems } = snapshot.requests;
  return {
    ...snapshot,
    workspaces: snapshot.workspaces.filter((workspace) => workspace.name === name),
    requests: {
      ...snapshot.requests,
      requests: requests.filter(isMeant),
      durations: durations.filter(isMeant),
      recentProblems: recentProblems.filter(isMeant),
    },
  };
}
