/**
 * What workspace-analytics-api.md says, as a function from a request to its answer: two reads, 401 without a
 * valid key, 403 for an insufficient role, 400 for invalid parameters, 429 over the limit, and JSON throughout.
 *
 * The specification names no parameter and no shape of an error body. So the stand-in accepts every query but
 * one that holds `stand-in=invalid`, and its error bodies are made up.
 */
import { createHash } from 'node:crypto';
import { accountsData, apiKeysData, readData } from './data.ts';

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
