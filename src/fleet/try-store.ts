/** One look at the shared store, for `check`: whether it can be reached and allows what gateways do with it. */
import { randomUUID } from 'node:crypto';
import { describeAddress, passwordInClear } from '../config/values.ts';
import { type FleetOptions, passwordReader } from './fleet.ts';
import { lookScript, releaseScript } from './scripts.ts';
import { SharedStore } from './store.ts';

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
  const taken = await store.run(lookScript, keys, [id, '800', '', '0', '1'], holderIn);
  const released = taken && (await store.run(releaseScript, [turn], [id, store.name('ended'), 'check']));
  if (released !== undefined) return undefined;
  const { refusal, reason } = store.snapshot();
  return refusal === undefined ? (reason ?? 'it did not answer') : `it refuses what gateways do: ${refusal}`;
}

function holderIn(reply: readonly [unknown, unknown, unknown, unknown, holder: Buffer]): string {
  return reply[4].toString();
}
