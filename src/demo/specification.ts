/**
 * What workspace-analytics-api.md says, as a function from a request to its answer: two reads, 401 without a
 * valid key, 403 for an insufficient role, 400 for invalid parameters, 429 over the limit, and JSON throughout.
 *
 * The specification names no parameter, no shape of an error body and no field of a record. So the stand-in accepts every
 * query but one that holds `stand-in=invalid`, and error bodies and records are made up; the gateway reads none of them. The
 * same seed gives the same bytes on every machine.
 */
import { createHash } from 'node:crypto';

/** One line of a message's header section, name and value as they go on the wire. */
export type HeaderLine = readonly [name: string, value: string];

/** An answer made once and sent often. */
export interface PreparedAnswer {
  readonly status: number;
  readonly lines: readonly HeaderLine[];
  /** The same lines and the length, flat, as `writeHead` takes them without going over them. */
  readonly fields: string[];
  readonly body: Buffer;
}

export interface SpecifiedBehaviour {
  readonly keys: ReadonlySet<string>;
  readonly role: 'sufficient' | 'insufficient';
  readonly reads: readonly string[];
  readonly accounts: number;
  readonly seed: number;
  readonly cacheControl: string | undefined;
  readonly etag: boolean;
  /** The value of `Retry-After` when the limit is used up, `null` when it is but nothing is to be said. */
  readonly refuse: () => string | null | undefined;
}

/** Answers one request by the specification alone. */
export type Specification = (
  method: string | undefined,
  target: string,
  key: string | undefined,
  ifNoneMatch: string | undefined,
) => PreparedAnswer;

const json: HeaderLine = ['Content-Type', 'application/json'];

function prepareAnswer(status: number, body: Buffer, lines: readonly HeaderLine[]): PreparedAnswer {
  // A 304 says nothing of the length of a body it does not have.
  const length: HeaderLine[] = status === 304 ? [] : [['Content-Length', String(body.length)]];
  return { status, lines, fields: [...lines, ...length].flat(), body };
}

function prepareError(status: number, detail: string, lines: readonly HeaderLine[] = []): PreparedAnswer {
  return prepareAnswer(status, Buffer.from(JSON.stringify({ detail })), [json, ...lines]);
}

const notFound = prepareError(404, 'Not found.');
const unauthenticated = prepareError(401, 'A valid key is required.');
const forbidden = prepareError(403, 'The workspace role is insufficient.');
const invalid = prepareError(400, 'Invalid parameters.');

interface Read {
  readonly answer: PreparedAnswer;
  readonly etag: string | undefined;
  readonly notModified: PreparedAnswer;
}

/** The order of refusals: unknown path, key, limit, role, parameters. Only what has a valid key uses the limit. */
export function followSpecification(behaviour: SpecifiedBehaviour): Specification {
  const exact = new Map<string, Read>();
  const patterns: [RegExp, Read][] = [];
  const add = (pattern: string, data: unknown): void => {
    const path = `/api${pattern}`;
    const read = prepareRead(data, behaviour);
    if (path.includes('/:')) patterns.push([patternOf(path), read]);
    else exact.set(path, read);
  };
  add('/analytics/accounts/', accountsData(behaviour.seed, behaviour.accounts));
  add('/users/api-keys/', apiKeysData(behaviour.seed));
  for (const pattern of behaviour.reads) add(pattern, readData(behaviour.seed, pattern));

  return (method, target, key, ifNoneMatch) => {
    const mark = target.indexOf('?');
    const path = mark === -1 ? target : target.slice(0, mark);
    const read = exact.get(path) ?? patterns.find(([pattern]) => pattern.test(path))?.[1];
    if (read === undefined || method !== 'GET') return notFound;
    if (key === undefined || !behaviour.keys.has(key)) return unauthenticated;
    const retryAfter = behaviour.refuse();
    if (retryAfter !== undefined) return tooMany(retryAfter);
    if (behaviour.role === 'insufficient') return forbidden;
    if (
      mark !== -1 &&
      target
        .slice(mark + 1)
        .split('&')
        .includes('stand-in=invalid')
    )
      return invalid;
    if (read.etag !== undefined && ifNoneMatch !== undefined && matches(ifNoneMatch, read.etag)) {
      return read.notModified;
    }
    return read.answer;
  };
}

function prepareRead(data: unknown, { cacheControl, etag }: SpecifiedBehaviour): Read {
  const body = Buffer.from(JSON.stringify(data));
  const tag = etag ? `"${createHash('sha256').update(body).digest('hex').slice(0, 16)}"` : undefined;
  const lines: HeaderLine[] = [];
  if (cacheControl !== undefined) lines.push(['Cache-Control', cacheControl]);
  if (tag !== undefined) lines.push(['ETag', tag]);
  return {
    answer: prepareAnswer(200, body, [json, ...lines]),
    etag: tag,
    notModified: prepareAnswer(304, Buffer.alloc(0), lines),
  };
}

function tooMany(retryAfter: string | null): PreparedAnswer {
  return prepareError(429, 'Too many requests.', retryAfter === null ? [] : [['Retry-After', retryAfter]]);
}

/** `:name` stands for one segment, as in UPSTREAM_READS. */
function patternOf(path: string): RegExp {
  const segments = path
    .split('/')
    .map((part) => (part.startsWith(':') ? '[^/]+' : part.replaceAll('.', '\\.')));
  return new RegExp(`^${segments.join('/')}$`);
}

/** RFC 9110 section 13.1.2: a list or `*`, compared weakly. */
function matches(ifNoneMatch: string, etag: string): boolean {
  return ifNoneMatch.split(',').some((one) => {
    const tag = one.trim();
    return tag === '*' || tag === etag || tag === `W/${etag}`;
  });
}

/** The stand-in's rate limit: a token bucket. */
export interface RateLimit {
  readonly perSecond: number;
  /** How many requests may come at once after a rest. */
  readonly burst: number;
  /** The first request is refused already. Default false. */
  readonly startsEmpty?: boolean;
  /** How a refusal says when to come back; `none` leaves the field out. Default `seconds`. */
  readonly retryAfter?: 'seconds' | 'date' | 'none';
  /** What refusals claim, instead of the true time until the next token. */
  readonly retryAfterSeconds?: number;
}

/** Takes a token and returns 0, or takes nothing and returns the ms until there will be one. */
export type TakeToken = (nowMs: number) => number;

/** A full bucket, unless it starts empty. A refusal takes nothing, so a storm of refused requests does not hold the limit down. */
export function fillBucket(limit: RateLimit, nowMs: number): TakeToken {
  let tokens = limit.startsEmpty === true ? 0 : limit.burst;
  let filledMs = nowMs;
  return (now) => {
    tokens = Math.min(limit.burst, tokens + ((now - filledMs) / 1000) * limit.perSecond);
    filledMs = now;
    // The sum of many small refills may fall short of a whole token by a rounding error.
    if (tokens >= 1 - 1e-9) {
      tokens = Math.max(0, tokens - 1);
      return 0;
    }
    return ((1 - tokens) / limit.perSecond) * 1000;
  };
}

/** The value of `Retry-After` (RFC 9110 section 10.2.3), rounded up so that it is never too early. */
export function retryAfterValue(limit: RateLimit, waitMs: number, nowEpochMs: number): string | undefined {
  if (limit.retryAfter === 'none') return undefined;
  const seconds = limit.retryAfterSeconds ?? Math.max(1, Math.ceil(waitMs / 1000));
  if (limit.retryAfter !== 'date') return String(seconds);
  return new Date(Math.ceil(nowEpochMs / 1000 + seconds) * 1000).toUTCString();
}

const platforms = ['instagram', 'youtube', 'tiktok', 'linkedin', 'facebook', 'pinterest'];
const firstWords = [
  'Northwind',
  'Lumen',
  'Harbor',
  'Juniper',
  'Atlas',
  'Copper',
  'Meadow',
  'Orbit',
  'Quarry',
];
const lastWords = ['Coffee', 'Studio', 'Outdoors', 'Kitchen', 'Press', 'Cycling', 'Gallery', 'Garden'];
const zones = ['Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Europe/Lisbon'];
const keyNames = ['Weekly report', 'Dashboard', 'Warehouse import', 'Spreadsheet'];

/** Fifteen accounts make about 3.3 KiB of JSON. */
export const defaultAccounts = 15;

/** The list of connected accounts. */
function accountsData(seed: number, count: number): unknown[] {
  const random = randomFrom(seed);
  return Array.from({ length: count }, (_, index) => {
    const first = pick(firstWords, random);
    const last = pick(lastWords, random);
    return {
      id: `acc_${hex(random, 12)}`,
      platform: pick(platforms, random),
      name: `${first} ${last}`,
      handle: `@${first}${last}${index + 1}`.toLowerCase(),
      followers: whole(random, 1_000, 250_000),
      posts: whole(random, 20, 4_000),
      engagement_rate: whole(random, 50, 900) / 100,
      time_zone: pick(zones, random),
      connected_at: day(random),
    };
  });
}

/** The list of the holder's API keys, without their secret values. */
function apiKeysData(seed: number): unknown[] {
  const random = randomFrom(seed + 1);
  return keyNames.map((name) => ({ id: `key_${hex(random, 12)}`, name, created_at: day(random) }));
}

/** What a further read returns. */
function readData(seed: number, pattern: string): unknown[] {
  const random = randomFrom(seed + 2);
  return Array.from({ length: 5 }, () => ({
    id: hex(random, 12),
    read: pattern,
    value: whole(random, 0, 10_000),
  }));
}

/** Mulberry32: small, and the same everywhere. */
function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function pick(from: readonly string[], random: () => number): string {
  return from[Math.floor(random() * from.length)] ?? '';
}

function whole(random: () => number, least: number, most: number): number {
  return least + Math.floor(random() * (most - least + 1));
}

function hex(random: () => number, digits: number): string {
  return Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join('');
}

function day(random: () => number): string {
  return new Date(Date.UTC(2024, 0, 1) + whole(random, 0, 600) * 86_400_000).toISOString();
}
