/**
 * The soak's upstream in a process of its own: the stand-in, which sends each request's target back in its body, and
 * misbehaves in one call of twenty. Told what to do and asked for its counts by messages.
 */

import type { ReceivedRequest } from '../../src/demo/stand-in.ts';
import { below, pick, type Random, randomFrom } from '../../test/support/random.ts';
import type { Behaviour, Misbehaviour } from '../../test/support/stand-in/behaviour.ts';
import { decide } from '../../test/support/stand-in/behaviour.ts';
import { everyMisbehaviour } from '../../test/support/stand-in/catalogue.ts';
import { standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { furtherReads, slowMark } from './reads.ts';

export interface UpstreamOrder {
  readonly kind: 'start' | 'count';
  readonly seed: number;
}

export interface UpstreamCounts {
  readonly received: number;
  readonly faults: number;
  readonly rateLimited: number;
  /** Requests that no gateway should send: another method, no key or two, another path. */
  readonly foul: readonly string[];
}

export type UpstreamReport =
  | { readonly kind: 'started'; readonly url: string }
  | ({ readonly kind: 'counted' } & UpstreamCounts);

const faultShare = 1 / 20;
/** Rare: a 429 holds back everything. */
const rateLimitedShare = 1 / 5_000;
const slowMs = 600;
/** Beyond UPSTREAM_TIMEOUT. */
const hangingMs = 10_000;
const longestLatencyMs = 25;

/**
 * Left out: 429s, which have their own share; and bytes that nothing asked for on an idle connection, because HTTP/1.1
 * has no response ids: what comes after a connection is taken for the next request counts as its answer. That is
 * the one mix-up which the gateway cannot exclude while it keeps connections.
 */
const leftOut = new Set(['status 429', 'key in Retry-After', 'unsolicited answer', 'two answers at once']);

let received = 0;
let faults = 0;
let rateLimited = 0;
const foul: string[] = [];

function behaviour(random: Random, catalogue: readonly Behaviour[]): Behaviour {
  return (request) => {
    received += 1;
    note(request);
    const body = echoOf(request);
    if (request.target.includes(slowMark)) return { body, latencyMs: slowMs };
    if (request.target.includes('/hangs/')) return { body, latencyMs: hangingMs };
    const draw = random();
    if (draw < rateLimitedShare) {
      rateLimited += 1;
      return { status: 429, headers: { 'Retry-After': '1' }, body };
    }
    if (draw < rateLimitedShare + faultShare) {
      faults += 1;
      return withEcho(decide(pick(random, catalogue), request) ?? {}, body);
    }
    return { body, latencyMs: below(random, longestLatencyMs) };
  };
}

/** A fault that says nothing of the body has the echo as well, so that a 404 is checked like a 200. */
function withEcho(told: Misbehaviour, body: string): Misbehaviour {
  return told.body !== undefined || told.echo?.in === 'body' ? told : { ...told, body };
}

/** From 100 bytes to 8 KiB, the same for the same target. */
function echoOf({ target }: ReceivedRequest): string {
  let mixed = 0;
  for (const character of target) mixed = (mixed * 31 + character.charCodeAt(0)) >>> 0;
  return JSON.stringify({ target, number: received, filler: 'x'.repeat(mixed % 8_000) });
}

const path =
  /^\/api\/(?:analytics\/accounts|users\/api-keys|analytics\/(?:reports|hangs)\/[\w.-]+|analytics\/posts\/[\w.-]+\/metrics)\/(?:\?|$)/;

function note({ method, target, rawHeaders, key }: ReceivedRequest): void {
  const keys = rawHeaders.filter((name, at) => at % 2 === 0 && /^(?:x.?api.?key|authorization)$/i.test(name));
  const isFair = method === 'GET' && keys.length === 1 && key === standInKey && path.test(target);
  if (!isFair && foul.length < 20) foul.push(`${method} ${target} with ${keys.length} keys`);
}

async function obey(order: UpstreamOrder): Promise<void> {
  if (order.kind === 'count') {
    report({ kind: 'counted', received, faults, rateLimited, foul });
    return;
  }
  const elsewhere = await startStandIn();
  const catalogue = everyMisbehaviour(elsewhere.origin).filter(({ name }) => !leftOut.has(name));
  const standIn = await startStandIn({ reads: furtherReads, recordRequests: false });
  standIn.behave(
    behaviour(
      randomFrom(order.seed),
      catalogue.map(({ behaviour: fault }) => fault),
    ),
  );
  report({ kind: 'started', url: standIn.url });
}

function report(message: UpstreamReport): void {
  process.send?.(message);
}

process.on('message', (order: UpstreamOrder) => void obey(order));
// The soak is over, however it ended.
process.on('disconnect', () => process.exit(0));
