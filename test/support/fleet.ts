/** Several whole gateways before one stand-in, with a store of their own. */
import { onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import { type AskOptions, ask, type Came } from './gateway.ts';
import { until } from './process.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from './stand-in/stand-in.ts';

export interface FleetMember {
  readonly gateway: Gateway;
  ask(path: string, options?: AskOptions): Promise<Came>;
  askAdmin(path: string, options?: AskOptions): Promise<Came>;
  /** `sharedStore` of `/status`. */
  sharedStore(): Promise<SharedStoreStatus>;
  logText(): string;
}

export interface SharedStoreStatus {
  readonly inUse: boolean;
  readonly reason: string | null;
  readonly nodes: readonly string[];
  readonly calls: number;
  readonly gateways: readonly {
    readonly id: string;
    readonly isThis: boolean;
    readonly figures: { readonly requests: number } | null;
  }[];
  readonly reads: { readonly found: number; readonly joined: number; readonly exchanges: number };
  readonly gate: { readonly role: string; readonly turnsGiven: number; readonly turnsTaken: number };
}

export interface TestFleet {
  readonly standIn: StandIn;
  readonly redis: RedisServer;
  readonly members: readonly FleetMember[];
  /** Starts one more, which ends with the test. */
  add(settings?: Record<string, string>): Promise<FleetMember>;
}

/** A store that is only slow, because the machine is, must not seem away. */
const patientMs = 10_000;

/**
 * Starts all of it, waits until each gateway uses the store, and ends it with the test.
 *
 * @param limitMs the longest that a gateway waits for the store; the usual 50 ms for tests of a store that goes away
 */
export async function startFleet(
  size: number,
  settings: Record<string, string> = {},
  standInOptions: StandInOptions = {},
  limitMs = patientMs,
): Promise<TestFleet> {
  const redis = await startRedis();
  const standIn = await startStandIn(standInOptions);
  const members: FleetMember[] = [];
  onTestFinished(async () => {
    await Promise.all(members.map(({ gateway }) => gateway.drain()));
    await standIn.close();
    await redis[Symbol.asyncDispose]();
  });
  async function add(more: Record<string, string> = {}): Promise<FleetMember> {
    const member = await startMember(
      {
        UPSTREAM_BASE_URL: standIn.url,
        UPSTREAM_API_KEY: standInKey,
        SHARED_STORE: redis.address,
        ...settings,
        ...more,
      },
      limitMs,
    );
    members.push(member);
    await usesStore(member);
    return member;
  }
  await Promise.all(Array.from({ length: size }, () => add()));
  return { standIn, redis, members, add };
}

/** Waits until a gateway's log says that it uses the store, or no longer does. */
export function usesStore(member: FleetMember, isUsed = true): Promise<void> {
  return until(() => {
    const log = member.logText();
    const isInUse =
      log.lastIndexOf('the shared store is in use') > log.lastIndexOf('the shared store is away');
    return isInUse === isUsed;
  });
}

async function startMember(settings: Record<string, string>, limitMs: number): Promise<FleetMember> {
  let log = '';
  const environment: Record<string, string> = {
    PORT: '0',
    ADMIN_PORT: '0',
    // Tests count upstream calls.
    UPSTREAM_API_KEY_CHECK: 'off',
    SHUTDOWN_GRACE: '2s',
    RETRY_BASE: '20ms',
    ...settings,
  };
  const gateway = await startGateway({
    config: readConfig(environment),
    environment,
    storeLimitMs: limitMs,
    logTo: {
      write(lines) {
        log += lines;
      },
      flush() {},
      async close() {},
    },
  });
  const at = (url: string | undefined) => ({ host: '127.0.0.1', port: Number(new URL(url ?? '').port) });
  const askAdmin: FleetMember['askAdmin'] = (path, options = {}) => ask(at(gateway.adminUrl), path, options);
  return {
    gateway,
    ask: (path, options = {}) => ask(at(gateway.url), path, options),
    askAdmin,
    async sharedStore() {
      const status = await askAdmin('/status');
      return status.json()['sharedStore'] as SharedStoreStatus;
    },
    logText() {
      gateway.log.flush();
      return log;
    },
  };
}
