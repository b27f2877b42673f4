/**
 * Several gateways as one, through a store that they share. The store makes things better and is never needed: each use
 * of it has a time limit and a local answer for when it is away. A hit in memory uses no store.
 */
import { randomUUID } from 'node:crypto';
import type { SharedReads } from '../cache/shared-reads.ts';
import type { SharedBuckets } from '../callers/limit.ts';
import { describeAddress, passwordInClear, type StoreAddress } from '../config/store-address.ts';
import type { Environment } from '../config/values.ts';
import { toSeconds } from '../exchange/figures.ts';
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
import { StoreServers } from './store-servers.ts';

export interface StoreOptions {
  readonly address: StoreAddress;
  /** `file:/path` or `env:NAME`. */
  readonly passwordFrom: string | undefined;
  readonly sentinelPasswordFrom?: string | undefined;
  readonly prefix: string;
  /** Where `env:` looks. */
  readonly environment: Environment;
  /** The longest that anything waits for the store, in ms; 50 where left out. Longer for tests on a slow machine. */
  readonly limitMs?: number | undefined;
}

export interface FleetOptions extends StoreOptions {
  readonly host: string;
  readonly version: string;
  readonly startedAt: number;
  /** What the others show of this gateway. */
  figures?(): MemberFigures;
}

export interface FleetWorkspace {
  /** Empty for the unnamed one. */
  readonly name: string;
  /** What decides how the upstream's answers are read: gateways that differ in it share no answers. */
  readonly scope: string;
  /** Names of the operations. */
  readonly operations: readonly string[];
  key(): Key | undefined;
  onChange(change: StoreChange): void;
}

/** The shared store's part of `/status`. */
export interface FleetSnapshot {
  readonly address: string;
  readonly kind: StoreAddress['kind'];
  /** The servers in use now: of a cluster the nodes, behind sentinels the master. */
  readonly nodes: readonly string[];
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

/** A workspace's part in the fleet. */
export interface Fleet {
  readonly reads: SharedReads;
  readonly buckets: SharedBuckets;
  /** For the gate: one pace and one order of turns for all. */
  readonly makeScheduler: MakeScheduler;
  snapshot(): FleetSnapshot;
  close(): Promise<void>;
}

interface Joined {
  readonly answers: SharedAnswers;
  readonly store: SharedStore;
}

/** This gateway among those that share the store, with one heartbeat and one connection a server for all workspaces. */
export class FleetMember {
  readonly #options: FleetOptions;
  readonly #servers: StoreServers;
  readonly #store: SharedStore;
  readonly #membership: Membership;
  readonly #joined = new Set<Joined>();
  readonly #heartbeat: NodeJS.Timeout;
  #beats = 0;

  /** Waits for nothing: the store may come later, or never. */
  constructor(options: FleetOptions) {
    const { prefix, limitMs } = options;
    this.#options = options;
    this.#servers = openServers(options);
    this.#store = new SharedStore({
      ...{ servers: this.#servers, prefix, limitMs },
      onChange: ({ state }) => {
        if (state === 'in use') void this.#membership.beat();
      },
    });
    this.#membership = new Membership({ ...options, store: this.#store });
    this.#heartbeat = setInterval(() => this.#beat(), heartbeatMs).unref();
  }

  join({ name, scope, operations, key, onChange }: FleetWorkspace): Fleet {
    const { prefix, limitMs } = this.#options;
    const membership = this.#membership;
    const store = new SharedStore({
      servers: this.#servers,
      prefix: name === '' ? prefix : `${prefix}:workspace:${name}`,
      limitMs,
      onChange(change) {
        onChange(change);
        gate.storeChanged(change.state === 'in use');
        if (change.state === 'in use') void answers.comparePurges();
      },
    });
    const sealing = sealWithKey(key, name);
    const workspace = { name, sealing };
    membership.join(workspace);
    const answers = new SharedAnswers({ store, scope, sealing, purgeable: ['*', ...operations] });
    const gateways = (): number => membership.sharing(workspace);
    const gate = new SharedGate({ store, scope, sealing, gateways, id: membership.id });
    const joined = { answers, store };
    this.#joined.add(joined);
    return {
      reads: answers,
      buckets: shareBuckets(store, sealing),
      makeScheduler: gate.makeScheduler,
      snapshot: () => {
        const { reason, refusal, latencyMs, ...rest } = store.snapshot();
        const { kind, servers: nodes } = this.#servers;
        return {
          ...rest,
          ...{ kind, nodes },
          reason: reason ?? refusal ?? null,
          latencySeconds: toSeconds(latencyMs, 1_000),
          reads: answers.snapshot(),
          gate: gate.snapshot(),
          gateways: membership.members.map((member) => ({ ...member, isThis: member.id === membership.id })),
        };
      },
      close: async () => {
        answers.close();
        await gate.close();
        this.#joined.delete(joined);
        if (this.#joined.size === 0) await this.#leave();
        store.close();
      },
    };
  }

  #beat(): void {
    void this.#membership.beat();
    this.#beats += 1;
    for (const [at, { answers, store }] of [...this.#joined].entries()) {
      void store.tryAgain();
      // A message may be lost: workspaces without a known purge are asked for in turn.
      const isTurn = this.#beats % this.#joined.size === at;
      if (isTurn || answers.hasPurges) void answers.comparePurges();
    }
  }

  async #leave(): Promise<void> {
    clearInterval(this.#heartbeat);
    await this.#membership.leave();
    this.#store.close();
    this.#servers.close();
  }
}

function openServers({ address, passwordFrom, sentinelPasswordFrom, environment, limitMs }: StoreOptions) {
  return new StoreServers({
    address,
    limitMs,
    readPassword: passwordReader('SHARED_STORE_PASSWORD_FROM', passwordFrom, environment),
    readSentinelPassword: passwordReader(
      'SHARED_STORE_SENTINEL_PASSWORD_FROM',
      sentinelPasswordFrom,
      environment,
    ),
  });
}

/** How to read a password; it rejects with a `KeyStoreError`. `undefined` where none is wanted. */
function passwordReader(
  setting: string,
  from: string | undefined,
  environment: Environment,
): (() => Promise<string>) | undefined {
  if (from === undefined) return undefined;
  return async () => {
    const store = openStore(from, environment, setting);
    const text = await store.load(AbortSignal.timeout(1_000));
    return text.replace(/\r?\n$/, '');
  };
}

export interface StoreTrial {
  readonly ok: boolean;
  readonly address: string;
  readonly kind: StoreAddress['kind'];
  /** The server that was tried. */
  readonly nodes: readonly string[];
  /** What is wrong, in a few words; no value of a password. */
  readonly problem?: string;
  /** What is not safe about the way to it. */
  readonly warning?: string;
}

/** One look at the shared store, for `check`: connects, takes a turn and gives it back, as gateways do. Never rejects. */
export async function tryStore(options: StoreOptions, timeoutMs: number): Promise<StoreTrial> {
  const { address, passwordFrom, sentinelPasswordFrom, prefix, limitMs } = options;
  const { promise: reached, resolve } = Promise.withResolvers<string | undefined>();
  const servers = openServers(options);
  const store = new SharedStore({
    ...{ servers, prefix, limitMs },
    onChange: ({ state, reason }) => resolve(state === 'in use' ? undefined : reason),
  });
  store.subscribe(store.name('check'), () => undefined);
  const timer = setTimeout(() => resolve('it was not reached in time'), timeoutMs);
  // The first use of a process that has just started may come too late by itself.
  const problem = (await reached) ?? ((await takeTurn(store)) && (await takeTurn(store)));
  clearTimeout(timer);
  const nodes = servers.servers;
  servers.close();
  const warning = passwordInClear(address, passwordFrom ?? sentinelPasswordFrom);
  return {
    ok: problem === undefined,
    address: describeAddress(address),
    ...{ kind: servers.kind, nodes },
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
