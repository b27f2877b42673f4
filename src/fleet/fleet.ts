/**
 * Several gateways as one, through a store that they share. The store makes things better and is never needed: each use
 * of it has a time limit and a local answer for when it is away. A hit in memory uses no store.
 */
import { randomUUID } from 'node:crypto';
import type { SharedReads } from '../cache/shared-reads.ts';
import type { SharedBuckets } from '../callers/limit.ts';
import { describeAddress, type Environment, passwordInClear, type StoreAddress } from '../config/values.ts';
import { toSeconds } from '../exchange/durations.ts';
import type { MakeScheduler } from '../gate/scheduler.ts';
import type { Key } from '../key/key.ts';
import { openStore } from '../key/open-store.ts';
import type { SharedGateSnapshot } from './gate-messages.ts';
import { heartbeatMs, type Member, type MemberFigures, Membership } from './membership.ts';
import { sealWithKey } from './sealing.ts';
import { SharedAnswers, type SharedAnswersSnapshot } from './shared-answers.ts';
import { shareBuckets } from './shared-buckets.ts';
import { SharedGate } from './shared-gate.ts';
import { SharedStore, type StoreChange } from './store.ts';

export interface FleetOptions {
  readonly address: StoreAddress;
  /** `file:/path` or `env:NAME`. */
  readonly passwordFrom: string | undefined;
  readonly prefix: string;
  /** Where `env:` looks. */
  readonly environment: Environment;
  /** The workspace whose records these are; empty for the unnamed one. */
  readonly workspace: string;
  /** What decides how the upstream's answers are read: gateways that differ in it share no answers. */
  readonly scope: string;
  /** Names of the operations. */
  readonly operations: readonly string[];
  readonly host: string;
  readonly version: string;
  readonly startedAt: number;
  /** What the others show of this gateway. */
  figures?(): MemberFigures;
  /** As `SharedStoreOptions.limitMs`. */
  readonly limitMs?: number | undefined;
  key(): Key | undefined;
  onChange(change: StoreChange): void;
}

/** The shared store's part of `/status`. */
export interface FleetSnapshot {
  readonly address: string;
  readonly inUse: boolean;
  /** Why it is away, or what it refuses; null where all is well. */
  readonly reason: string | null;
  readonly latencySeconds: number | null;
  readonly calls: number;
  readonly failures: number;
  readonly reads: SharedAnswersSnapshot;
  readonly gate: SharedGateSnapshot;
  readonly gateways: readonly (Member & { readonly isThis: boolean })[];
}

export interface Fleet {
  readonly reads: SharedReads;
  readonly buckets: SharedBuckets;
  /** For the gate: one pace and one order of turns for all. */
  readonly makeScheduler: MakeScheduler;
  snapshot(): FleetSnapshot;
  close(): Promise<void>;
}

/** Joins the gateways that share the store. Waits for nothing: the store may come later, or never. */
export function joinFleet(options: FleetOptions): Fleet {
  const { address, prefix, passwordFrom, environment, onChange, scope } = options;
  const store = new SharedStore({
    address,
    prefix,
    limitMs: options.limitMs,
    readPassword: passwordReader(passwordFrom, environment),
    onChange(change) {
      onChange(change);
      gate.storeChanged(change.state === 'in use');
      if (change.state === 'in use') void beat();
    },
  });
  const sealing = sealWithKey(options.key, options.workspace);
  const purgeable = ['*', ...options.operations];
  const answers = new SharedAnswers({ store, scope, sealing, purgeable });
  const { host, version, startedAt } = options;
  const onPurges = (purges: readonly (readonly [string, string])[]): void => answers.comparePurges(purges);
  const { figures } = options;
  const about = { host, version, startedAt, ...(figures && { figures }) };
  const membership = new Membership({ store, sealing, ...about, purgeable, onPurges });
  const gateways = (): number => membership.sharing;
  const gate = new SharedGate({ store, scope, sealing, gateways, id: membership.id });

  async function beat(): Promise<void> {
    await answers.publishPurges();
    await membership.beat();
  }

  const heartbeat = setInterval(() => void beat(), heartbeatMs).unref();
  return {
    reads: answers,
    buckets: shareBuckets(store, sealing),
    makeScheduler: gate.makeScheduler,
    snapshot() {
      const { address, inUse, reason, refusal, latencyMs, calls, failures } = store.snapshot();
      return {
        address,
        inUse,
        reason: reason ?? refusal ?? null,
        latencySeconds: toSeconds(latencyMs, 1_000),
        calls,
        failures,
        reads: answers.snapshot(),
        gate: gate.snapshot(),
        gateways: membership.members.map(({ id, ...member }) => ({
          id,
          isThis: id === membership.id,
          ...member,
        })),
      };
    },
    async close() {
      clearInterval(heartbeat);
      answers.close();
      await gate.close();
      await membership.leave();
      store.close();
    },
  };
}

/** How to read the store's password; it rejects with a `KeyStoreError`. `undefined` where the store wants none. */
function passwordReader(
  from: string | undefined,
  environment: FleetOptions['environment'],
): (() => Promise<string>) | undefined {
  if (from === undefined) return undefined;
  return async () => {
    const store = openStore(from, environment, 'SHARED_STORE_PASSWORD_FROM');
    const text = await store.load(AbortSignal.timeout(1_000));
    return text.replace(/\r?\n$/, '');
  };
}

export interface StoreTrial {
  readonly ok: boolean;
  readonly address: string;
  /** What is wrong, in a few words; no value of a password. */
  readonly problem?: string;
  /** What is not safe about the way to it. */
  readonly warning?: string;
}

type TrialOptions = Pick<FleetOptions, 'address' | 'passwordFrom' | 'prefix' | 'environment' | 'limitMs'>;

/** Connects, takes a turn and gives it back, as gateways do. Never rejects. */
export async function tryStore(options: TrialOptions, timeoutMs: number): Promise<StoreTrial> {
  const { address, passwordFrom, prefix, environment, limitMs } = options;
  const { promise: reached, resolve } = Promise.withResolvers<string | undefined>();
  const store = new SharedStore({
    address,
    prefix,
    limitMs,
    readPassword: passwordReader(passwordFrom, environment),
    onChange: ({ state, reason }) => resolve(state === 'in use' ? undefined : reason),
  });
  const timer = setTimeout(() => resolve('it was not reached in time'), timeoutMs);
  // The first use of a process that has just started may come too late by itself.
  const problem = (await reached) ?? ((await takeTurn(store)) && (await takeTurn(store)));
  clearTimeout(timer);
  store.close();
  const warning = passwordInClear(address, passwordFrom);
  return {
    ok: problem === undefined,
    address: describeAddress(address),
    ...(problem && { problem }),
    ...(warning && { warning }),
  };
}

async function takeTurn(store: SharedStore): Promise<string | undefined> {
  const id = randomUUID();
  const turn = store.name('turn', 'check');
  const keys = [store.name('answer', 'check'), turn, store.name('outcome', id), store.name('purges')];
  const taken = await store.run('look', keys, [id, '800', '', '0', '1'], holderIn);
  const released = taken && (await store.run('release', [turn], [id, store.name('ended'), 'check']));
  if (released !== undefined) return undefined;
  const { refusal, reason } = store.snapshot();
  return refusal === undefined ? (reason ?? 'it did not answer') : `it refuses what gateways do: ${refusal}`;
}

function holderIn(reply: readonly [unknown, unknown, unknown, unknown, holder: Buffer]): string {
  return reply[4].toString();
}
