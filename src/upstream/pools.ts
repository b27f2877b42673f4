/** Pools of connections, one after the other. */
import type { Pool } from 'undici';

export interface Pools {
  /** The pool that serves now. */
  current(): Pool;
  /** Connections that are open, of former pools too. */
  readonly connected: number;
  /** Those of the present pool that no exchange uses. */
  readonly idle: number;
  /** Opens another pool; the former closes its idle connections at once, and the others when their exchange ends. */
  renew(): void;
  /** Ends all connections, those in use too. */
  destroy(): Promise<void>;
}

/**
 * A pool for a while, then another one, while the former ends when its last exchange has. (Undici's own `clientTtl`
 * looks at the clock once for every connection that is busy.)
 *
 * @param open makes a pool that does not connect before its first exchange
 */
export function renewPools(open: () => Pool, lifeMs: number): Pools {
  let pool = open();
  let openedMs = performance.now();
  const ending = new Set<Pool>();
  function renew(): void {
    const former = pool;
    pool = open();
    openedMs = performance.now();
    ending.add(former);
    const ended = (): boolean => ending.delete(former);
    former.close().then(ended, ended);
  }
  return {
    current() {
      if (performance.now() - openedMs >= lifeMs) renew();
      return pool;
    },
    get connected() {
      return [pool, ...ending].reduce((sum, { stats }) => sum + stats.connected, 0);
    },
    get idle() {
      return pool.stats.free;
    },
    renew,
    async destroy() {
      await Promise.all([pool, ...ending].map((one) => one.destroy()));
    },
  };
}
