/**
 * Divides connections and their memory among the addresses that they come from. An address may take all of it while no
 * other asks. Where something more does not fit, the address that holds the most loses its oldest connection that asks for
 * nothing: so a stranger with ten thousand connections, with heads that never end or with replies that it does not read,
 * takes the place of its own earlier connections. Connections with a request under way have as many bytes of their own;
 * where these do not suffice, the address that holds the most loses its youngest one: what came first goes on.
 *
 * No clock, no socket: the caller says when a connection may hold another number of bytes than before.
 *
 * How large the budget is depends on the machine: beyond the limit of open files the system drops connections silently,
 * and the upstream cannot be reached; beyond the memory it ends the process. To refuse a few with a log line is better.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';

/** What is bounded. */
export type Bound = 'connections' | 'bytes' | 'busyBytes';

export interface ConnectionBudgetLimits {
  /** Connections at once. */
  readonly maxConnections: number;
  /** Bytes of all connections that have no request under way, and as many of all that have one. */
  readonly maxBytes: number;
}

export interface BudgetedConnection {
  /** Whom it counts for, in one spelling. */
  readonly address: string;
  /** What it holds at the moment. */
  heldBytes(): number;
  /** Whether the reply to a whole request is awaited: its bytes count apart, and it is ended for their sake alone. */
  isBusy(): boolean;
  /** Ends it at once; `remove` may be called meanwhile. */
  end(bound: Bound): void;
}

/** What is counted for one connection, an address or all. */
interface Held {
  bytes: number;
  busyBytes: number;
}

/** The connections of one address, the oldest first. */
interface Share extends Held {
  readonly address: string;
  readonly held: Map<BudgetedConnection, Held>;
}

export class ConnectionBudget {
  readonly #limits: ConnectionBudgetLimits;
  readonly #shares = new Map<string, Share>();
  readonly #all: Held = { bytes: 0, busyBytes: 0 };
  #connections = 0;

  constructor(limits: ConnectionBudgetLimits) {
    this.#limits = limits;
  }

  get connections(): number {
    return this.#connections;
  }

  get bytes(): number {
    return this.#all.bytes;
  }

  /** Counts a connection that has come. Where nothing else can make room for it, it is ended itself. */
  add(connection: BudgetedConnection): void {
    const { address } = connection;
    const share = this.#shares.get(address) ?? { address, held: new Map(), bytes: 0, busyBytes: 0 };
    this.#shares.set(address, share);
    share.held.set(connection, { bytes: 0, busyBytes: 0 });
    this.#connections += 1;
    this.measure(connection);
    this.enforce();
  }

  /** Looks at what a connection holds now. */
  measure(connection: BudgetedConnection): void {
    const share = this.#shares.get(connection.address);
    const held = share?.held.get(connection);
    if (share === undefined || held === undefined) return;
    const now = connection.heldBytes();
    const isBusy = connection.isBusy();
    this.#count(share, held, isBusy ? 0 : now, isBusy ? now : 0);
  }

  #count(share: Share, held: Held, bytes: number, busyBytes: number): void {
    for (const sum of [share, this.#all]) {
      sum.bytes += bytes - held.bytes;
      sum.busyBytes += busyBytes - held.busyBytes;
    }
    held.bytes = bytes;
    held.busyBytes = busyBytes;
  }

  /** Forgets a connection that has ended; once more does nothing. */
  remove(connection: BudgetedConnection): void {
    const share = this.#shares.get(connection.address);
    const held = share?.held.get(connection);
    if (share === undefined || held === undefined) return;
    this.#count(share, held, 0, 0);
    share.held.delete(connection);
    this.#connections -= 1;
    if (share.held.size === 0) this.#shares.delete(share.address);
  }

  /** Ends connections until all bounds are kept, or no connection is left that may be ended. */
  enforce(): void {
    const { maxConnections, maxBytes } = this.#limits;
    while (this.#connections > maxConnections && this.#endOne('connections'));
    while (this.#all.bytes > maxBytes && this.#endOne('bytes'));
    while (this.#all.busyBytes > maxBytes && this.#endOne('busyBytes'));
  }

  /** @returns whether one was ended */
  #endOne(bound: Bound): boolean {
    const passed = new Set<Share>();
    for (;;) {
      const heaviest = this.#heaviest(bound, passed);
      if (heaviest === undefined) return false;
      const isBusy = bound === 'busyBytes';
      const oldestFirst = heaviest.held.keys();
      for (const connection of isBusy ? [...oldestFirst].reverse() : oldestFirst) {
        if (connection.isBusy() !== isBusy) continue;
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
      const weight = bound === 'connections' ? share.held.size : share[bound];
      if (weight <= most || passed.has(share)) continue;
      heaviest = share;
      most = weight;
    }
    return heaviest;
  }
}

/** What the log, the key's store, the modules and the event loop hold open, and connections of the admin listener. */
const ownDescriptors = 64;
/** Without those of the admin listener: it idles with less. */
const leastOwnDescriptors = 32;
/** A probe, a scraper and a person. */
const leastAdminConnections = 4;

/** How many files a process may have open, by the text of its `/proc/self/limits` (proc(5)); `undefined` where it does not say. */
export function maxOpenFiles(limits: string): number | undefined {
  const digits = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Connections at once, of each kind. */
export interface Connections {
  readonly callers: number;
  readonly upstream: number;
  readonly admin: number;
}

/**
 * The connections to allow: those asked for, or fewer where the limit is too low for them. Then callers and upstream have
 * half each of what is left: beyond the limit the system would refuse connections to the upstream as it likes, and end
 * those of callers without a word.
 *
 * @param limits the text of `/proc/self/limits`
 */
export function connectionsWithin(limits: string, wanted: Omit<Connections, 'admin'>): Connections {
  const limit = maxOpenFiles(limits) ?? Number.POSITIVE_INFINITY;
  const own = Math.min(ownDescriptors, Math.max(leastOwnDescriptors, Math.ceil(limit / 2)));
  const left = Math.max(2, limit - own);
  const upstream = Math.min(wanted.upstream, Math.floor(left / 2));
  return {
    upstream,
    callers: Math.min(wanted.callers, left - upstream),
    admin: Math.max(leastAdminConnections, own - leastOwnDescriptors),
  };
}

/** The limits of this process; nothing where the system does not show them. */
export function readProcessLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'latin1');
  } catch {
    return '';
  }
}

/** What memory there is for this process, in bytes. */
export interface Memory {
  /** That of the machine. */
  readonly totalBytes: number;
  /** Of its control group (cgroups(7)); 0 or more than the machine's where there is no limit. */
  readonly limitBytes: number;
  /** What V8's heap may grow to. */
  readonly heapBytes: number;
}

export function readMemory(): Memory {
  return {
    totalBytes: totalmem(),
    limitBytes: process.constrainedMemory(),
    heapBytes: getHeapStatistics().heap_size_limit,
  };
}

/**
 * How much of the memory connections may hold that ask for nothing: a quarter. The rest is for the gateway itself, the
 * cache, bodies in flight and replies that callers are reading. A heap that is full ends the process as well, and about
 * half of what a connection holds is there.
 */
export function connectionBytesWithin(memory: Memory): number {
  return Math.floor(Math.min(memoryBytes(memory), 2 * memory.heapBytes) / 4);
}

/** Answers in flight, and replies that callers have not read, hold no more than this each. */
const mostBodyBytes = 64 * 2 ** 20;

/**
 * How much of the memory answers in flight may hold, and as much replies that are not read: a sixteenth where that is less.
 * Of large answers as much again lies dead for a while, for V8 collects late what is outside its heap.
 */
export function bodyBytesWithin(memory: Memory): number {
  return Math.min(mostBodyBytes, Math.floor(memoryBytes(memory) / 16));
}

function memoryBytes({ totalBytes, limitBytes }: Memory): number {
  return limitBytes > 0 ? Math.min(totalBytes, limitBytes) : totalBytes;
}
