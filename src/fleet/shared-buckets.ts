/** Callers' own limits across gateways: one bucket for each caller in the shared store. */
import type { CallerLimit } from '../callers/caller.ts';
import type { SharedBuckets } from '../callers/limit.ts';
import type { KeySealing } from './key-sealing.ts';
import { takeScript } from './scripts.ts';
import type { SharedStore } from './store.ts';

/** @param sealing makes the store's names, so that they tell nothing of the callers'; none while there is no key */
export function shareBuckets(store: SharedStore, sealing: () => KeySealing | undefined): SharedBuckets {
  return {
    get inUse() {
      return store.inUse && sealing() !== undefined;
    },
    async take(caller: string, { perSecond, burst }: CallerLimit, count: number) {
      const name = sealing()?.sealing.nameOf(`caller ${caller}`);
      if (name === undefined) return undefined;
      const values = [String(count), String(perSecond), String(burst)];
      const level = await store.run(takeScript, [store.name('limit', name)], values, (reply: Buffer) =>
        Number(reply.toString()),
      );
      return Number.isFinite(level) ? level : undefined;
    },
  };
}
