/**
 * The only place that opens connections to the upstream. One attempt: a GET built from constants, the operation's
 * path, the exact query and allow-listed fields; the answer read whole, decoded where it came in a content coding,
 * checked, and handed up as a value.
 *
 * Nothing here follows a redirect or puts the key into anything but the field it belongs in: no
 * `fetch`, no `Headers`, whose errors print the values they refuse.
 */

import Pool from 'undici/lib/dispatcher/pool.js';
import type { Answer, SignedRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';
import type { AttemptSpans, Trace } from '../exchange/trace.ts';
import { ownUp } from '../http/header-table.ts';
import { viaName } from '../version.ts';
import { Attempt, type AttemptTerms } from './attempt.ts';
import type { AttemptTally } from './attempt-tally.ts';
import {
  type AttemptSlots,
  BodyBudget,
  type BudgetShare,
  type CappedPools,
  type ConnectionCap,
} from './budgets.ts';
import { acceptMediaTypes } from './response.ts';

export interface TransportOptions {
  readonly baseUrl: URL;
  /** One attempt, from its start to the last byte. */
  readonly timeoutMs: number;
  readonly maxBodyBytes: number;
  /** Connections, and so attempts, at once. */
  readonly connections: number;
  /** Media ranges of successes that pass. */
  readonly mediaTypes: readonly string[];
  readonly userAgent: string;
  /** Where connections leave the network, where not by themselves. */
  readonly proxy?: OutboundProxy | undefined;
  /** Further fields of answers that say how long to wait. Lower-case names. */
  readonly limitFields: readonly string[];
  /** Bytes of answers in flight. */
  readonly bodies: BudgetShare;
  /** Attempts that may go at the same time, where other workspaces have attempts too. */
  readonly slots?: AttemptSlots | undefined;
  /** Connections, idle ones included, where other workspaces have connections too. */
  readonly cap?: ConnectionCap | undefined;
  /** Counts what is sent. */
  readonly tally?: AttemptTally;
  /** Makes a span of each attempt. */
  readonly spans?: AttemptSpans | undefined;
}

export interface Transport {
  readonly handler: Handler<SignedRequest, Answer>;
  /** Ends all connections, those in use too. */
  close(): Promise<void>;
}

type UndiciPool = InstanceType<typeof Pool>;

/** A pool is not used for longer than this, so that a change in DNS is followed. */
const connectionLifeMs = 60_000;

export function sendUpstream(options: TransportOptions): Transport {
  const { cap } = options;
  const pools: Pools = renewPools(() => {
    const pool = openPool(options);
    if (cap !== undefined) pool.on('connect', () => cap.fit(pools));
    return pool;
  });
  cap?.join(pools);
  const budget = new BodyBudget(options.bodies);
  const { slots } = options;
  const connections = { lastUsedMs: 0 };
  const isAcceptedType = acceptMediaTypes(options.mediaTypes);
  const basePath = options.baseUrl.pathname.replace(/\/$/, '');

  const constant = constantFields(options.userAgent);
  const terms = (revalidating: boolean): AttemptTerms => ({
    limits: { maxBodyBytes: options.maxBodyBytes, isAcceptedType, revalidating },
    budget,
    tally: options.tally,
    spans: options.spans,
    limitFields: options.limitFields,
    connections,
  });
  const forRead = terms(false);
  const forRevalidation = terms(true);

  function send(request: SignedRequest, trace: Trace): Promise<Answer> {
    const attempt = new Attempt(request, trace, request.validators === undefined ? forRead : forRevalidation);
    if (attempt.begin(options.timeoutMs)) {
      const headers = upstreamFields(request, attempt.ids, constant);
      const path = `${basePath}${request.path}${request.query}`;
      // Blocking: a head that is late must not hold up another request on the same connection.
      pools.current().dispatch({ method: 'GET', path, headers, blocking: true }, attempt);
    }
    return attempt.answer;
  }

  async function sendInSlot(request: SignedRequest, trace: Trace, free: AttemptSlots): Promise<Answer> {
    await free.take(request.context);
    try {
      return await send(request, trace);
    } finally {
      free.release();
    }
  }

  return {
    handler: slots === undefined ? send : (request, trace) => sendInSlot(request, trace, slots),
    close: () => pools.destroy(),
  };
}

function openPool({ baseUrl, connections, timeoutMs, proxy }: TransportOptions): UndiciPool {
  return new Pool(baseUrl.origin, {
    connections,
    // One answer at a time on a connection: HTTP/1.1 has no response ids, so nothing may overlap.
    pipelining: 1,
    allowH2: false,
    keepAliveTimeout: 10_000,
    keepAliveMaxTimeout: connectionLifeMs,
    maxHeaderSize: 32 * 1024,
    // Said here, so that no environment variable can unsay it.
    connect: proxy?.takes(baseUrl)
      ? proxy.connector(timeoutMs)
      : { timeout: timeoutMs, rejectUnauthorized: true },
    // The timer of each attempt covers head and body.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
}

/** Pools of connections, one after the other. */
interface Pools extends CappedPools {
  /** The pool that serves now. */
  current(): UndiciPool;
  /** Ends all connections, those in use too. */
  destroy(): Promise<void>;
}

/**
 * A pool for a while, then another one, while the former ends when its last exchange has. (Undici's own `clientTtl`
 * looks at the clock once for every connection that is busy.)
 *
 * @param open makes a pool that does not connect before its first exchange
 */
function renewPools(open: () => UndiciPool): Pools {
  let pool = open();
  let openedMs = performance.now();
  const ending = new Set<UndiciPool>();
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
      if (performance.now() - openedMs >= connectionLifeMs) renew();
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

/** What does not change from one attempt to the next, names and values in turn: the key's value comes next. */
export function constantFields(userAgent: string): readonly string[] {
  return [
    ...['accept', 'application/json', 'accept-encoding', 'identity'],
    ...['user-agent', userAgent, 'via', viaName, 'x-api-key'],
  ];
}

/** The fields of the upstream request, names and values in turn. */
export function upstreamFields(
  request: SignedRequest,
  ids: SignedRequest['ids'],
  constant: readonly string[],
): string[] {
  const fields = [...constant, request.key];
  pushForwarded(fields, request.keyedHeaders);
  pushForwarded(fields, request.headers);
  pushForwarded(fields, ids);
  const { validators } = request;
  for (const name in validators) fields.push(name, validators[name] as string);
  return fields;
}

/** A forwarded field never overrides or repeats one of the gateway's own. */
function pushForwarded(fields: string[], more: Readonly<Record<string, string>>): void {
  for (const name in more) if (!ownUp.has(name)) fields.push(name, more[name] as string);
}
