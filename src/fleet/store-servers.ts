/**
 * Which server has the names of a workspace: the one of the address, the master that the sentinels name, or the node of a
 * cluster. Each server has one connection, however many workspaces are there. Where a server is lost, or is not in charge
 * any more, the question is asked again. Nothing is ever read from a replica.
 */
import { createClient, ErrorReply } from '@redis/client';
import { describeServer, type StoreAddress, type StoreServer } from '../config/store-address.ts';
import {
  type ConnectionOptions,
  clientOptions,
  describeError,
  type ServerAccess,
  type ServerPlace,
  StoreConnection,
  within,
} from './store-connection.ts';

export interface StoreServersOptions {
  readonly address: StoreAddress;
  readonly readPassword?: ConnectionOptions['readPassword'];
  readonly readSentinelPassword?: ConnectionOptions['readPassword'];
  readonly limitMs?: number | undefined;
}

/** A workspace's use of the store. */
export interface ServerUser {
  /** Any name of the workspace: all of them lie on one server. */
  readonly anyName: string;
  use(connection: StoreConnection): void;
  /** No server is known that has its names. */
  onNowhere(reason: string): void;
}

/** The longest that one server is asked where the names are. */
const askLimitMs = 1_000;
/** How soon the question is asked again that was of no use, and how often it is asked at most. */
const askAgainMs = 250;
/** An old master that was cut off from the sentinels still answers, so these are asked while all seems well. */
const askSentinelsEveryMs = 2_000;

/** From the first to the last hash slot of a range: its node. */
type SlotRange = readonly [first: number, last: number, node: StoreServer];

export class StoreServers {
  readonly #options: StoreServersOptions;
  readonly #connections = new Map<string, StoreConnection>();
  readonly #users = new Map<ServerUser, StoreConnection | undefined>();
  /** Of a cluster: the hash slot of each user's names. */
  readonly #slots = new Map<ServerUser, number>();
  /** Of a cluster: nodes that were found, which are asked before those of the address. */
  #nodes: readonly StoreServer[] = [];
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;
  #isAsking = false;
  #isClosed = false;

  constructor(options: StoreServersOptions) {
    this.#options = options;
  }

  get kind(): StoreAddress['kind'] {
    return this.#options.address.kind;
  }

  get address(): StoreAddress {
    return this.#options.address;
  }

  /** The servers that are in use, without passwords. */
  get servers(): string[] {
    return [...this.#connections.keys()];
  }

  attach(user: ServerUser): void {
    this.#users.set(user, undefined);
    const { address } = this.#options;
    if (address.kind === 'unix' || address.kind === 'tcp') this.#place(user, address);
    else this.lookAgain();
  }

  detach(user: ServerUser): void {
    this.#users.delete(user);
    this.#slots.delete(user);
    this.#closeUnused();
  }

  /** A server was lost, or says that another one has the names. @param first where to ask first */
  lookAgain(first?: StoreServer): void {
    if (first !== undefined) this.#nodes = [first, ...this.#nodes];
    if (!this.#isFound) return;
    this.#askIn(this.#connections.size === 0 ? 0 : askAgainMs);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#users.clear();
    this.#closeUnused();
  }

  /** Whether servers are to be found, and not named by the address. */
  get #isFound(): boolean {
    return this.kind === 'sentinel' || this.kind === 'cluster';
  }

  #askIn(ms: number): void {
    const dueMs = performance.now() + ms;
    if (this.#isClosed || this.#isAsking || dueMs >= this.#dueMs) return;
    clearTimeout(this.#timer);
    this.#dueMs = dueMs;
    this.#timer = setTimeout(() => void this.#ask(), ms).unref();
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    this.#dueMs = Number.POSITIVE_INFINITY;
    let nextMs: number | undefined;
    try {
      if (this.kind === 'sentinel') await this.#askSentinels();
      else await this.#askNodes();
      nextMs = this.kind === 'sentinel' ? askSentinelsEveryMs : undefined;
    } catch (error) {
      const reason = `${this.kind === 'sentinel' ? 'the sentinels' : 'the nodes'}: ${describeError(error)}`;
      for (const [user, connection] of this.#users) if (connection === undefined) user.onNowhere(reason);
      nextMs = askAgainMs;
    }
    this.#isAsking = false;
    const isPlaced = [...this.#users.values()].every((one) => one !== undefined && one.reason === undefined);
    if (!isPlaced) nextMs = askAgainMs;
    if (nextMs !== undefined) this.#askIn(nextMs);
  }

  /** All of them, for one that is cut off names the master of before: the latest election counts. */
  async #askSentinels(): Promise<void> {
    const { address, readSentinelPassword } = this.#options;
    if (address.kind !== 'sentinel') return;
    const { tls, master } = address;
    const access = { tls, username: undefined, readPassword: readSentinelPassword };
    const answers = await Promise.allSettled(
      address.servers.map((server) => askServer(server, access, ['SENTINEL', 'MASTER', master])),
    );
    let latest: { readonly server: StoreServer; readonly epoch: number } | undefined;
    for (const answer of answers) {
      if (answer.status === 'rejected') continue;
      const server = parseNode(answer.value['ip'], answer.value['port']);
      const epoch = Number(answer.value['config-epoch']);
      if (server !== undefined && epoch > (latest?.epoch ?? -1)) latest = { server, epoch };
    }
    if (latest === undefined) {
      const refused = answers.find((answer) => answer.status === 'rejected');
      throw refused?.reason ?? new Error('no sentinel names the master');
    }
    for (const user of this.#users.keys()) this.#place(user, latest.server);
  }

  /** The first node that answers knows all. */
  async #askNodes(): Promise<void> {
    const { address, readPassword } = this.#options;
    if (address.kind !== 'cluster') return;
    const { tls, username } = address;
    let failure: unknown;
    for (const server of uniqueServers([...this.#nodes, ...address.servers])) {
      try {
        await withServer(server, { tls, username, readPassword }, async (send) => {
          const ranges = parseSlots(await send(['CLUSTER', 'SLOTS']), server);
          this.#nodes = uniqueServers(ranges.map(([, , node]) => node));
          for (const user of this.#users.keys()) {
            const slot = this.#slots.get(user) ?? Number(await send(['CLUSTER', 'KEYSLOT', user.anyName]));
            this.#slots.set(user, slot);
            const [, , node] = ranges.find(([first, last]) => slot >= first && slot <= last) ?? [];
            if (node === undefined) user.onNowhere('no node of the cluster has its names');
            else if (this.#users.has(user)) this.#place(user, node);
          }
        });
        return;
      } catch (error) {
        failure = error;
      }
    }
    this.#nodes = [];
    throw failure;
  }

  #place(user: ServerUser, place: ServerPlace): void {
    const { address, readPassword, limitMs } = this.#options;
    const name = 'path' in place ? `unix:${place.path}` : describeServer(place);
    let connection = this.#connections.get(name);
    if (connection === undefined) {
      connection = new StoreConnection(place, {
        limitMs,
        readPassword,
        tls: address.kind !== 'unix' && address.tls,
        username: address.kind === 'unix' ? undefined : address.username,
        isCluster: address.kind === 'cluster',
        database: address.kind === 'tcp' || address.kind === 'sentinel' ? address.database : 0,
      });
      connection.watch({ onUsable() {}, onLost: () => this.lookAgain() });
      this.#connections.set(name, connection);
    }
    if (this.#users.get(user) === connection) return;
    this.#users.set(user, connection);
    user.use(connection);
    this.#closeUnused();
  }

  #closeUnused(): void {
    const used = new Set(this.#users.values());
    for (const [name, connection] of this.#connections) {
      if (used.has(connection)) continue;
      this.#connections.delete(name);
      connection.close();
    }
  }
}

type Send = (command: readonly string[]) => Promise<unknown>;

/** @throws Error where it cannot be reached in time, or what `use` throws */
async function withServer<T>(
  server: StoreServer,
  access: ServerAccess,
  use: (send: Send) => Promise<T>,
): Promise<T> {
  const client = createClient(clientOptions(server, access));
  // Its promises tell the same.
  client.on('error', () => undefined);
  try {
    return await within(
      askLimitMs,
      (async () => {
        await client.connect();
        return use((command) => client.sendCommand([...command]));
      })(),
    );
  } finally {
    if (client.isOpen) client.destroy();
  }
}

/** @throws Error where it gives no table of names and values */
async function askServer(
  server: StoreServer,
  access: ServerAccess,
  command: readonly string[],
): Promise<Record<string, unknown>> {
  const reply = await withServer(server, access, (send) => send(command));
  if (typeof reply !== 'object' || reply === null) throw new ErrorReply('it answers in another form');
  return Array.isArray(reply) ? pairsIn(reply) : { ...reply };
}

function pairsIn(list: readonly unknown[]): Record<string, unknown> {
  const pairs = list.flatMap((name, at) => (at % 2 === 0 ? [[String(name), list[at + 1]] as const] : []));
  return Object.fromEntries(pairs);
}

/** Nothing that a server says of others is trusted further than to connect to it. */
function parseNode(host: unknown, port: unknown): StoreServer | undefined {
  const number = Number(port);
  if (typeof host !== 'string' || host === '' || !(number >= 1 && number <= 65_535)) return undefined;
  return { host, port: number };
}

/** The reply of CLUSTER SLOTS. A node that does not know its own name is where it was asked. */
function parseSlots(reply: unknown, asked: StoreServer): SlotRange[] {
  if (!Array.isArray(reply)) throw new Error('it answers in another form than a cluster does');
  return reply.flatMap((range: unknown): SlotRange[] => {
    if (!Array.isArray(range) || !Array.isArray(range[2])) return [];
    const [host, port] = range[2] as unknown[];
    const node = parseNode(host === null || host === '' ? asked.host : host, port);
    return node === undefined ? [] : [[Number(range[0]), Number(range[1]), node]];
  });
}

function uniqueServers(servers: readonly StoreServer[]): StoreServer[] {
  return [...new Map(servers.map((server) => [describeServer(server), server])).values()];
}
