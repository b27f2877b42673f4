/** Pools of connections, one after the other. */
import type { Dispatcher } from 'undici';

export interface Pools {
  /** The pool that serves now. */
  current(): Dispatcher;
  /** Ends all connections, those in use too. */
  destroy(): Promise<void>;
}

/**
 * A pool for a while, then another one, while the former ends when its last exchange has. (Undici's own `clientTtl`
 * looks at the clock once for every connection that is busy.)
 */
export function renewPools(open: () => Dispatcher, lifeMs: number): Pools {
  let pool = open();
  let openedMs = performance.now();
  const ending = new Set<Dispatcher>();
  return {
    current() {
      const nowMs = performance.now();
      if (nowMs - openedMs >= lifeMs) {
        const former = pool;
        pool = open();
        openedMs = nowMs;
        ending.add(former);
        const ended = (): boolean => ending.delete(former);
        former.close().then(ended, ended);
      }
      return pool;
    },
    async destroy() {
      await Promise.all([pool, ...ending].map((one) => one.destroy()));
    },
  };
}
