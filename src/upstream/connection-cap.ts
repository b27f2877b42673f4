/**
 * Connections of all workspaces together, those included that wait for the next attempt. Where one more is made than
 * there may be, the workspace with most idle ones closes these; what is in use goes on.
 */
import type { Pools } from './pools.ts';

export type CappedPools = Pick<Pools, 'connected' | 'idle' | 'renew'>;

export class ConnectionCap {
  readonly #most: number;
  readonly #all: CappedPools[] = [];

  constructor(most: number) {
    this.#most = most;
  }

  join(pools: CappedPools): void {
    this.#all.push(pools);
  }

  /** For a workspace that has made a connection. */
  fit(own: CappedPools): void {
    let connected = 0;
    let idlest: CappedPools | undefined;
    for (const one of this.#all) {
      connected += one.connected;
      if (one !== own && one.idle > (idlest?.idle ?? 0)) idlest = one;
    }
    if (connected > this.#most) idlest?.renew();
  }
}
