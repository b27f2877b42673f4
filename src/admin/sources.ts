/** What the admin listener shows, as functions that read it: it holds nothing itself, and changes nothing but by `purge`. */

import type { CacheSnapshot } from '../cache/cache.ts';
import type { DirectorySnapshot } from '../callers/directory.ts';
import type { GateSnapshot } from '../gate/types.ts';
import type { KeyHealth } from '../key/key-event.ts';
import type { AttemptSnapshot } from '../upstream/attempt-tally.ts';
import type { CircuitSnapshot } from '../upstream/circuit.ts';
import type { RequestSnapshot } from './request-counts.ts';

export interface AdminSources {
  readonly version: string;
  /** Wall clock, ms. */
  readonly startedAt: number;
  /** Names of the operations that callers may make. */
  readonly operations: readonly string[];
  /** Names of the settings that are not as by default. */
  readonly changedSettings: readonly string[];
  /** Why the gateway is not ready; `undefined` when it is. */
  notReady(): string | undefined;
  requests(): RequestSnapshot;
  key(): KeyHealth;
  gate(): GateSnapshot;
  circuit(): CircuitSnapshot;
  cache(): CacheSnapshot;
  attempts(): AttemptSnapshot;
  /** @param most how many of them to describe */
  callers(most: number): DirectorySnapshot;
  /** Requests that wait for the upstream. */
  waiting(): number;
  /** Connections of callers that are open. */
  connections(): Promise<number>;
  /** Forgets stored answers, all or one operation's. Returns how many reads were held. */
  purge(operation: string | undefined): number;
}

/** Everything at one moment, and what the process says of itself. */
export interface AdminFacts {
  readonly version: string;
  readonly nodeVersion: string;
  /** Wall clock, ms. */
  readonly at: number;
  readonly startedAt: number;
  readonly notReady: string | undefined;
  readonly requests: RequestSnapshot;
  readonly key: KeyHealth;
  readonly gate: GateSnapshot;
  readonly circuit: CircuitSnapshot;
  readonly cache: CacheSnapshot;
  readonly attempts: AttemptSnapshot;
  readonly callers: DirectorySnapshot;
  readonly waiting: number;
  readonly connections: number;
  readonly cpuSeconds: number;
  readonly residentBytes: number;
  /** How long the event loop was busy and idle since the start, in seconds. */
  readonly loopBusySeconds: number;
  readonly loopIdleSeconds: number;
  /** How late the event loop was for this very request, in seconds. */
  readonly loopLagSeconds: number;
}
