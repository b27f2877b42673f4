/**
 * Gateways and their store under load, while both are killed, stopped and emptied at random. Every request is accounted
 * for: by what its caller got, by its line in a gateway's log, and by what the upstream has answered.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { randomFrom } from '../../test/support/random.ts';
import { startRedis } from '../../test/support/redis.ts';
import { startCluster, startSentinels } from '../../test/support/redis-sets.ts';
import { standInKey } from '../../test/support/stand-in/stand-in.ts';
import type { CallerPlan } from '../storm/callers.ts';
import { type GatewayProcess, mintTokens, startGatewayProcess } from '../storm/gateway-process.ts';
import { startUpstream } from '../storm/upstream.ts';
import { atLeast, atMost, type Check } from './checks.ts';

export interface FaultRun {
  readonly seconds: number;
  readonly seed: number;
  readonly gateways: number;
  readonly kind: StoreKind;
  /** Told of each fault. */
  note(text: string): void;
}

export type StoreKind = keyof typeof storeKinds;

interface TroubledStore extends AsyncDisposable {
  readonly address: string;
  /** What the gateways reach at least, as a share of what the upstream allows; 0 where it is not judged. */
  readonly leastGoodput: number;
  disturb(faults: Faults, untilMs: number): Promise<void>;
}

interface Trouble {
  readonly random: () => number;
  readonly gateways: number;
  note(text: string): void;
}

/** A gateway, from its start to its end. */
interface Life {
  readonly process: GatewayProcess;
  readonly pool: Pool;
  /** What its callers got, by the request's id: a status, or 0 while it is under way or where it was cut off. */
  readonly requests: Map<string, number>;
  isKilled: boolean;
}

const caller: CallerPlan = { name: 'load', loops: 30, thinkMs: 20, weight: 1 };
const limit = { perSecond: 50, burst: 10, retryAfterSeconds: undefined };
const deadlineMs = 25_000;
const patienceMs = 40_000;

class Faults {
  readonly lives: Life[] = [];
  readonly places: (Life | undefined)[] = [];
  readonly #start: () => Promise<GatewayProcess>;
  readonly #token: string;
  #asked = 0;
  #answeredMs = performance.now();
  longestGapMs = 0;

  constructor(upstream: URL, storeAddress: string) {
    const tokens = mintTokens([caller]);
    this.#token = tokens.get(caller.name) ?? '';
    const settings = { SHARED_STORE: storeAddress, SHUTDOWN_GRACE: '30s' };
    this.#start = () => startGatewayProcess(upstream, standInKey, deadlineMs, [caller], settings, tokens);
  }

  async open(place: number): Promise<void> {
    const process = await this.#start();
    const life: Life = { process, pool: new Pool(process.url.origin), requests: new Map(), isKilled: false };
    this.lives.push(life);
    this.places[place] = life;
  }

  /** Another gateway takes the place of this one, which dies or ends properly. */
  async replace(place: number, isKilled: boolean): Promise<void> {
    const life = this.places[place];
    if (life === undefined) return;
    this.places[place] = undefined;
    if (isKilled) {
      life.isKilled = true;
      life.process.signal('SIGKILL');
    } else await drained(life);
    await this.open(place);
  }

  /** Asks once, with the query of its own. @returns how long the caller is to wait before it asks again, ms */
  async ask(): Promise<number> {
    const id = `fault-${this.#asked++}`;
    const alive = this.places.flatMap((life) => life ?? []);
    const life = alive[this.#asked % Math.max(alive.length, 1)];
    if (life === undefined) return 50;
    life.requests.set(id, 0);
    try {
      const { statusCode, headers, body } = await life.pool.request({
        ...{
          method: 'GET',
          path: `/api/analytics/accounts/?n=${id}`,
          signal: AbortSignal.timeout(patienceMs),
        },
        headers: { authorization: `Bearer ${this.#token}`, 'x-request-id': id },
      });
      await body.dump();
      life.requests.set(id, statusCode);
      if (statusCode === 200) {
        const nowMs = performance.now();
        this.longestGapMs = Math.max(this.longestGapMs, nowMs - this.#answeredMs);
        this.#answeredMs = nowMs;
      }
      return statusCode === 200 ? caller.thinkMs : Number(headers['retry-after'] ?? 1) * 1_000;
    } catch {
      return caller.thinkMs;
    }
  }

  async close(): Promise<void> {
    for (const life of this.lives) await drained(life);
  }
}

/** Ends it once its callers have their answers. */
async function drained(life: Life): Promise<void> {
  life.process.signal('SIGCONT');
  await life.process.end();
  if (!life.pool.closed) await life.pool.destroy();
}

/** One server, which is killed, stopped and emptied at random, as the gateways are killed and stopped. */
async function troubledServer({ random, gateways, note }: Trouble): Promise<TroubledStore> {
  const store = await startRedis();
  const spanMs = (mostMs: number): number => Math.round(100 + random() * mostMs);
  const place = (): number => Math.floor(random() * gateways);
  const kinds: readonly (readonly [name: string, act: (faults: Faults) => Promise<void>])[] = [
    [
      'the store is killed',
      async () => {
        await store.kill();
        await sleep(spanMs(2_000));
        await store.start();
      },
    ],
    [
      'the store stands still',
      async () => {
        store.freeze();
        await sleep(spanMs(2_000));
        store.thaw();
      },
    ],
    ['the store is emptied', async () => void (await store.command('FLUSHALL'))],
    ['a gateway is killed', (faults) => faults.replace(place(), true)],
    ['a gateway is restarted', (faults) => faults.replace(place(), false)],
    [
      'a gateway stands still',
      async (faults) => {
        const life = faults.places[place()];
        life?.process.signal('SIGSTOP');
        await sleep(spanMs(1_500));
        life?.process.signal('SIGCONT');
      },
    ],
  ];
  return {
    address: store.address,
    leastGoodput: 0,
    async disturb(faults, untilMs) {
      while (performance.now() < untilMs) {
        const [name, act] = kinds[Math.floor(random() * kinds.length)] ?? ['', async () => undefined];
        note(name);
        await act(faults);
        await sleep(spanMs(1_000));
      }
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

/** A master that is killed twice a minute, and comes back as a replica. */
async function troubledSentinels({ note }: Trouble): Promise<TroubledStore> {
  const store = await startSentinels();
  return {
    address: store.address,
    leastGoodput: 0.85,
    async disturb(_, untilMs) {
      while (performance.now() + 25_000 < untilMs) {
        await sleep(15_000);
        const master = await store.master();
        note(`the master on port ${master.port} is killed`);
        await master.kill();
        await sleep(10_000);
        await master.start();
        await sleep(5_000);
      }
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

/** Three masters, of which one gives all its slots to another in the middle. */
async function troubledCluster({ note }: Trouble): Promise<TroubledStore> {
  const store = await startCluster();
  return {
    address: store.address,
    leastGoodput: 0.85,
    async disturb(_, untilMs) {
      await sleep((untilMs - performance.now()) / 2);
      const from = await store.owner('{analytics-gateway}');
      const to = await store.otherMaster(from);
      note(`all slots move from port ${from.port} to port ${to.port}`);
      await store.moveSlots(from, to);
      note('they have moved');
    },
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

export const storeKinds = {
  server: troubledServer,
  sentinels: troubledSentinels,
  cluster: troubledCluster,
};

export async function runFaults({ seconds, seed, gateways, kind, note }: FaultRun): Promise<Check[]> {
  const store = await storeKinds[kind]({ random: randomFrom(seed), gateways, note });
  const upstream = await startUpstream(limit, 5);
  const faults = new Faults(upstream.url, store.address);
  await Promise.all(Array.from({ length: gateways }, (_, place) => faults.open(place)));
  const untilMs = performance.now() + seconds * 1_000;
  const loop = async (): Promise<void> => {
    while (performance.now() < untilMs) await sleep(await faults.ask());
  };
  const loops = Array.from({ length: caller.loops }, loop);
  const disturbing = store.disturb(faults, untilMs);
  await Promise.all([...loops, disturbing]);
  const counts = await upstream.counts();
  await faults.close();
  const checks = await judge(faults.lives, counts);
  const allowed = limit.perSecond * seconds + limit.burst;
  const { leastGoodput } = store;
  checks.push(
    leastGoodput > 0
      ? atLeast('goodput', counts.answered / allowed, leastGoodput)
      : { text: `goodput ${(counts.answered / allowed).toFixed(3)}`, isMet: true },
    { text: `${Math.round(faults.longestGapMs)} ms was the longest time without an answer`, isMet: true },
  );
  await upstream.close();
  await store[Symbol.asyncDispose]();
  return checks;
}

/** Nothing is lost, doubled or wrong, but for what was under way at a gateway that was killed. */
async function judge(
  lives: readonly Life[],
  { answered, refused }: { readonly answered: number; readonly refused: number },
): Promise<Check[]> {
  const totals = { requests: 0, ok: 0, cut: 0, lost: 0, wrong: 0, unlogged: 0 };
  for (const { process, requests, isKilled } of lives) {
    const logged = new Map<string, number[]>();
    for (const { requestId, status } of await process.requests()) {
      const id = String(requestId);
      logged.set(id, [...(logged.get(id) ?? []), Number(status)]);
    }
    for (const [id, status] of requests) {
      const lines = logged.get(id) ?? [];
      totals.requests += 1;
      if (status === 200) totals.ok += 1;
      else if (status === 0) totals[isKilled ? 'cut' : 'lost'] += 1;
      else if (status !== 429) totals.wrong += 1;
      // The last lines of a gateway that was killed may be lost with it.
      const isLogged =
        lines.length === 1 ? status === 0 || lines[0] === status : isKilled && lines.length === 0;
      if (!isLogged) totals.unlogged += 1;
    }
  }
  const unseen = answered - totals.ok;
  return [
    { text: `${totals.requests} requests, ${totals.ok} answered with 200`, isMet: totals.ok > 0 },
    { text: `${totals.cut} were under way at a gateway that was killed`, isMet: true },
    atMost('lost at a gateway that was not killed', totals.lost, 0),
    atMost('answers but 200 and 429', totals.wrong, 0),
    atMost('without exactly one line in the log', totals.unlogged, 0),
    {
      text: `${answered} answers of the upstream, ${unseen} of them to requests that were cut off`,
      isMet: unseen >= 0 && unseen <= totals.cut,
    },
    // Each gateway that begins while the store is away begins freely: how much that costs is no fault.
    { text: `${refused} 429s of the upstream`, isMet: true },
  ];
}
