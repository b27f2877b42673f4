/**
 * Divides connections, and the memory of those that ask for nothing, among the addresses that they come from. An address
 * may take all of it while no other asks. Where something more does not fit, the address that holds the most loses its
 * eldest connection, but never one with a request under way: so a stranger with ten thousand connections, with heads
 * that never end or with replies that it does not read, takes the place of its own earlier connections.
 *
 * No clock, no socket: the caller says when a connection may hold another number of bytes than before.
 */

/** What is bounded. */
export type Bound = 'connections' | 'bytes';

export interface ConnectionBudgetLimits {
  /** Connections at once. */
  readonly maxConnections: number;
  /** Bytes of all connections that have no request under way. */
  readonly maxBytes: number;
}

export interface BudgetedConnection {
  /** Whom it counts for, in one spelling. */
  readonly address: string;
  /** What it holds at the moment. */
  heldBytes(): number;
  /** Whether the reply to a whole request is awaited: such a connection is not ended, and its bytes do not count. */
  isBusy(): boolean;
  /** Ends it at once; `remove` may be called meanwhile. */
  end(bound: Bound): void;
}

/** The connections of one address, the eldest first, each with the bytes that are counted for it. */
interface Share {
  readonly address: string;
  readonly held: Map<BudgetedConnection, number>;
  bytes: number;
}

export class ConnectionBudget {
  readonly #limits: ConnectionBudgetLimits;
  readonly #shares = new Map<string, Share>();
  #connections = 0;
  #bytes = 0;

  constructor(limits: ConnectionBudgetLimits) {
    this.#limits = limits;
  }

  get connections(): number {
    return this.#connections;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts a connection that has come. Where nothing else can make room for it, it is ended itself. */
  add(connection: BudgetedConnection): void {
    const { address } = connection;
    const share = this.#shares.get(address) ?? { address, held: new Map(), bytes: 0 };
    this.#shares.set(address, share);
    share.held.set(connection, 0);
    this.#connections += 1;
    this.measure(connection);
    this.enforce();
  }

  /** Looks at what a connection holds now. */
  measure(connection: BudgetedConnection): void {
    const share = this.#shares.get(connection.address);
    const before = share?.held.get(connection);
    if (share === undefined || before === undefined) return;
    const now = connection.isBusy() ? 0 : connection.heldBytes();
    if (now === before) return;
    share.held.set(connection, now);
    share.bytes += now - before;
    this.#bytes += now - before;
  }

  /** Forgets a connection that has ended; once more does nothing. */
  remove(connection: BudgetedConnection): void {
    const share = this.#shares.get(connection.address);
    const bytes = share?.held.get(connection);
    if (share === undefined || bytes === undefined) return;
    share.held.delete(connection);
    share.bytes -= bytes;
    this.#bytes -= bytes;
    this.#connections -= 1;
    if (share.held.size === 0) this.#shares.delete(share.address);
  }

  /** Ends connections until all bounds are kept, or no connection is left that may be ended. */
  enforce(): void {
    const { maxConnections, maxBytes } = this.#limits;
    while (this.#connections > maxConnections && this.#endOne('connections'));
    while (this.#bytes > maxBytes && this.#endOne('bytes'));
  }

  /** @returns whether one was ended */
  #endOne(bound: Bound): boolean {
    const passed = new Set<Share>();
    for (;;) {
      const heaviest = this.#heaviest(bound, passed);
      if (heaviest === undefined) return false;
      for (const connection of heaviest.held.keys()) {
        if (connection.isBusy()) continue;
        this.remove(connection);
        connection.end(bound);
        return true;
      }
      passed.add(heaviest);
    }
  }

  #heaviest(bound: Bound, passed: ReadonlySet<Share>): Share | undefined {
    let heaviest: Share | undefined;
    let most = 0;
    for (const share of this.#shares.values()) {
      const weight = bound === 'bytes' ? share.bytes : share.held.size;
      if (weight <= most || passed.has(share)) continue;
      heaviest = share;
      most = weight;
    }
    return heaviest;
  }
}
