/**
 * Callers' own limits across gateways: one bucket for each caller in the shared store. Gateways sign what they write
 * there, so that no other program can empty it: what it could put back is an earlier state of theirs, which time has
 * filled at least as far as the last one.
 */
import { LRUCache } from 'lru-cache';
import { fullBucket, refill, untilFullMs } from '../callers/bucket.ts';
import type { CallerLimit } from '../callers/caller.ts';
import type { SharedBuckets } from '../callers/limit.ts';
import type { KeySealing, Sealing } from './sealing.ts';
import type { SharedStore } from './store.ts';
import { clockErrorMs } from './store-clock.ts';

/** A bucket as it lies in the store. */
interface StoredBucket {
  readonly text: string;
  /** Requests that may come; below zero where gateways have let through too many together. */
  readonly level: number;
  /** When it was so, in ms of the store's clock. */
  readonly atMs: number;
}

/** So many are remembered; of another the store is asked. */
const maxKnown = 20_000;

/** How often a gateway tries to write where others write at the same time. */
const mostTries = 10;

/** @param sealing makes the store's names, so that they tell nothing of the callers'; none while there is no key */
export function shareBuckets(
  store: Pick<SharedStore, 'inUse' | 'clock' | 'name' | 'run'>,
  sealing: () => KeySealing | undefined,
): SharedBuckets {
  /** As they were last written or read, by their names in the store. */
  const known = new LRUCache<string, StoredBucket>({ maxSize: maxKnown, sizeCalculation: () => 1 });

  async function take(keys: Sealing, caller: string, limit: CallerLimit, count: number) {
    const window = limit.windowMs === undefined ? '' : ` ${limit.windowMs}`;
    const name = keys.nameOf(`caller ${caller}${window}`);
    let seen = known.get(name);
    let text = seen?.text ?? '';
    for (let tries = 0; tries < mostTries; tries += 1) {
      const nowMs = store.clock.at(performance.now());
      if (nowMs === undefined) return undefined;
      // The store's clock was set back: time would fill nothing until it is there again.
      if (seen !== undefined && seen.atMs > nowMs + clockErrorMs) seen = undefined;
      const next = signed(keys, name, drawn(seen, limit, count, nowMs));
      const keptMs = String(Math.ceil(untilFullMs(next, limit)) + 1_000);
      const found = await store.run(
        'bucket',
        [store.name('limit', name)],
        [text, next.text, keptMs],
        (reply: Buffer | null) => reply?.toString() ?? '',
      );
      if (found === undefined) return undefined;
      if (found === next.text) {
        known.set(name, next);
        return next.level;
      }
      text = found;
      const read = readBucket(keys, name, found, nowMs);
      // What this gateway knows is later than a state that was put back, or lost.
      if (read !== undefined && read.atMs >= (seen?.atMs ?? 0)) seen = read;
    }
    return undefined;
  }

  return {
    get inUse() {
      return store.inUse && sealing() !== undefined;
    },
    async take(caller, limit, count) {
      const keys = sealing()?.sealing;
      return keys && take(keys, caller, limit, count);
    },
  };
}

/** A bucket that was not seen before is full. */
function drawn(
  seen: StoredBucket | undefined,
  limit: CallerLimit,
  count: number,
  nowMs: number,
): Omit<StoredBucket, 'text'> {
  const bucket = seen === undefined ? fullBucket(limit, nowMs) : { level: seen.level, atMs: seen.atMs };
  refill(bucket, limit, Math.max(nowMs, bucket.atMs));
  return { level: bucket.level - count, atMs: bucket.atMs };
}

function signed(keys: Sealing, name: string, { level, atMs }: Omit<StoredBucket, 'text'>): StoredBucket {
  return { text: keys.sign(`bucket ${name}`, `${level} ${atMs}`), level, atMs };
}

/** `undefined` for what no gateway has written, or wrote before the store's clock was set back. */
function readBucket(keys: Sealing, name: string, text: string, nowMs: number): StoredBucket | undefined {
  const [level, atMs] = text.split(' ').map(Number);
  if (level === undefined || atMs === undefined || !(atMs <= nowMs + clockErrorMs)) return undefined;
  return keys.isSigned(`bucket ${name}`, text) ? { text, level, atMs } : undefined;
}
