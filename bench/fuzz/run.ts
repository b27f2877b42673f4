/**
 * The fuzzer: mutated requests and mutated upstream answers, on raw sockets, against the built gateway with the image's
 * flags. A case follows from the seed and its number alone, so each can be run again by itself.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { parseExposition } from '../../test/support/exposition-parser.ts';
import { below, type Random, randomFrom } from '../../test/support/random.ts';
import { type Deployed, startDeployed } from '../deployed.ts';
import { type FuzzedAnswer, fuzzAnswer } from './answers.ts';
import { exchange } from './connection.ts';
import { isWhole, type Judged, judge, type Logged, secretsIn } from './judge.ts';
import { bytesOf, piecesOf } from './mutate.ts';
import { type Credentials, fuzzRequest } from './requests.ts';
import { type FuzzUpstream, startFuzzUpstream } from './upstream.ts';

export interface FuzzOptions {
  readonly seed: number;
  /** Ends after so many cases, */
  readonly cases?: number;
  /** or after so long, ms. */
  readonly forMs?: number;
  /** Runs only the case with this number. */
  readonly only?: number;
}

export interface Violation {
  /** The case it was seen in; where the log or the process is concerned, one of the last batch. */
  readonly number: number;
  readonly what: string;
  readonly request: Buffer;
  readonly answer: Buffer | undefined;
  /** What the gateway gave back. */
  readonly came: Buffer;
}

export interface FuzzResult {
  readonly cases: number;
  readonly replies: ReadonlyMap<string, number>;
  readonly violations: readonly Violation[];
}

/** Its characters look different in a URL and in JSON. */
const key = 'wk_fuzz+3f9d/71c2~"e5a0.b64d==';
const workers = 64;
const batchSize = 6 * workers;
/** Beyond the sum of the gateway's own limits below, on a busy machine too. */
const patienceMs = 30_000;
const maxViolations = 20;
const untilEndIsSeenMs = 1_000;

interface Session {
  readonly seed: number;
  readonly gateway: Deployed;
  readonly upstream: FuzzUpstream;
  readonly credentials: Credentials;
  readonly log: LogWatch;
  readonly replies: Map<string, number>;
  readonly violations: Violation[];
  hasEnded: boolean;
  /** Processor time of the gateway up to the last batch. */
  cpuSeconds: number;
  /** Of this process, at the same time. */
  ownCpu: NodeJS.CpuUsage;
}

/** @throws Error where the gateway does not start */
export async function fuzz(options: FuzzOptions): Promise<FuzzResult> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-fuzz-'));
  const upstream = await startFuzzUpstream(key);
  try {
    const credentials = { key, token: mintToken() };
    const log = watchLog([key, credentials.token]);
    const settings = settingsOf(upstream, writeCallers(folder, credentials.token));
    const gateway = await startDeployed({ folder, settings, onLine: log.read });
    const session: Session = {
      ...{ seed: options.seed, gateway, upstream, credentials, log },
      replies: new Map(),
      violations: [],
      hasEnded: false,
      cpuSeconds: 0,
      ownCpu: process.cpuUsage(),
    };
    void gateway.exited.then(() => {
      session.hasEnded = true;
    });
    const cases = await runBatches(session, options);
    await stop(session);
    return { cases, replies: session.replies, violations: session.violations };
  } finally {
    upstream.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function settingsOf(upstream: FuzzUpstream, callersFile: string): Record<string, string> {
  return {
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEY: key,
    UPSTREAM_API_KEY_CHECK: 'off',
    UPSTREAM_READS: operationNames.join(','),
    CALLERS_FILE: callersFile,
    ALLOWED_HOSTS: 'localhost,127.0.0.1',
    CORS_ORIGINS: 'https://app.example',
    FORWARD_REQUEST_HEADERS: 'x-fuzz',
    FORWARD_RESPONSE_HEADERS: 'x-echo',
    HEADERS_TIMEOUT: '500ms',
    REQUEST_TIMEOUT: '8s',
    UPSTREAM_TIMEOUT: '2s',
    UPSTREAM_CONNECTIONS: '128',
    UPSTREAM_MAX_BODY: '64KiB',
    RETRY_LIMIT: '1',
    RETRY_BASE: '10ms',
    RETRY_CAP: '50ms',
    // A fuzzed 429 would hold back all other cases.
    GATE_MAX_CLOSED: '0s',
    CALLER_FAILURES_PER_MINUTE: '0',
    LOG_LEVEL: 'debug',
    SHUTDOWN_GRACE: '5s',
  };
}

/** Each worker has an operation of its own, whose circuit its good requests keep closed. */
const operationNames = Array.from({ length: workers }, (_, worker) => `/fuzz/w${worker}/`);

function writeCallers(folder: string, token: string): string {
  const operations = ['list-accounts', 'list-api-keys', ...operationNames];
  const file = join(folder, 'callers.json');
  const callers = [{ name: 'fuzz', operations, tokens: [{ sha256: digestOf(token) }] }];
  writeFileSync(file, JSON.stringify({ callers }), { mode: 0o600 });
  return file;
}

/** Returns how many cases were run. */
async function runBatches(session: Session, { cases, forMs, only }: FuzzOptions): Promise<number> {
  if (only !== undefined) {
    await runBatch(session, only, 1);
    return 1;
  }
  const endMs = performance.now() + (forMs ?? Number.POSITIVE_INFINITY);
  const most = cases ?? (forMs === undefined ? batchSize : Number.POSITIVE_INFINITY);
  let done = 0;
  while (done < most && performance.now() < endMs && isFine(session)) {
    const size = Math.min(batchSize, most - done);
    await runBatch(session, done, size);
    done += size;
  }
  return done;
}

function isFine({ hasEnded, violations }: Session): boolean {
  return !hasEnded && violations.length < maxViolations;
}

interface Case {
  readonly number: number;
  readonly sent: Judged;
  readonly answer: FuzzedAnswer | undefined;
  came: Buffer;
  logged: readonly Logged[];
}

async function runBatch(session: Session, from: number, size: number): Promise<void> {
  const { seed, credentials, upstream } = session;
  const batch = Array.from({ length: size }, (_, at) => {
    const number = from + at;
    const random = caseRandom(seed, number);
    const made = makeCase(random, number, credentials);
    if (made.answer !== undefined) upstream.prepare(number, made.answer, random);
    return { made, random };
  });
  // The worker of a case is its number's, whichever cases are run.
  const lanes = Map.groupBy(batch, ({ made }) => made.number % workers);
  await Promise.all(
    [...lanes].map(async ([worker, lane]) => {
      for (const { made, random } of lane) if (isFine(session)) await runCase(session, made, random, worker);
    }),
  );
  const cases = batch.map(({ made }) => made);
  try {
    await checkBatch(session, cases);
  } catch (error) {
    // The process is seen to have ended a moment after its port is closed.
    await Promise.race([session.gateway.exited, sleep(patienceMs)]);
    noteEnd(session, cases, error);
  }
  upstream.forget();
}

function caseRandom(seed: number, number: number): Random {
  return randomFrom(Math.imul(seed, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b));
}

function makeCase(random: Random, number: number, credentials: Credentials): Case {
  const nothing = { came: Buffer.alloc(0), logged: [] };
  if (random() < 0.55) {
    const sent = { ...fuzzRequest(random, number, credentials), hasAnswer: false };
    return { number, sent, answer: undefined, ...nothing };
  }
  const path = operationNames[number % workers] ?? '';
  const head = [
    `GET /api${path}?case=${number} HTTP/1.1`,
    'Host: localhost',
    `Authorization: Bearer ${credentials.token}`,
    `X-Request-ID: case-${number}`,
    ...(random() < 0.3 ? ['Accept-Encoding: gzip'] : []),
    ...(random() < 0.2 ? ['Origin: https://app.example'] : []),
    '',
  ].join('\r\n');
  // What was stored is asked for again, and again: as it is, and compressed.
  const asked = `${head}\r\n`.repeat(1 + below(random, 3));
  const bytes = bytesOf(`${asked}${head}Connection: close\r\n\r\n`);
  return {
    number,
    sent: { listener: 'public', bytes, ending: 'waits', hasAnswer: true },
    answer: fuzzAnswer(random, credentials.key),
    ...nothing,
  };
}

async function runCase(session: Session, made: Case, random: Random, worker: number): Promise<void> {
  const { gateway, credentials, replies } = session;
  const { sent } = made;
  const port = sent.listener === 'admin' ? gateway.adminPort : gateway.port;
  const came = await exchange(port, piecesOf(sent.bytes, random), sent.ending, patienceMs, (bytes) =>
    isWhole(sent, bytes),
  );
  if (session.hasEnded) return;
  made.came = came.bytes;
  const { faults, logged } = judge(sent, came, [credentials.key, credentials.token]);
  made.logged = logged;
  for (const what of faults) note(session, made, what);
  for (const [status] of came.bytes.toString('latin1').matchAll(/(?<=^HTTP\/1\.1 )\d{3}/gm)) {
    replies.set(status, (replies.get(status) ?? 0) + 1);
  }
  const wellFormed = await followUp(session, sent.listener, worker, made.number);
  if (wellFormed === undefined) return;
  // A process that is ending has a finding of its own, with its reason.
  await Promise.race([gateway.exited, sleep(untilEndIsSeenMs)]);
  if (!session.hasEnded) note(session, made, `a well-formed request right after got ${wellFormed}`);
}

/**
 * Three tries: bytes that a broken upstream sent after an answer may meet the next request on that connection, the one
 * race that HTTP/1.1 leaves.
 */
const followUps = 3;
/** What a well-formed request got instead of a 200, or `undefined`. */
async function followUp(
  { gateway, credentials }: Session,
  listener: Judged['listener'],
  worker: number,
  number: number,
): Promise<string | undefined> {
  let last = '';
  for (let attempt = 0; attempt < followUps; attempt++) {
    const [port, target] =
      listener === 'admin'
        ? [gateway.adminPort, '/status']
        : [gateway.port, `/api${operationNames[worker]}?after=${number}-${attempt}`];
    const head = `GET ${target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${credentials.token}\r\n`;
    const bytes = bytesOf(`${head}Connection: close\r\n\r\n`);
    const { bytes: came } = await exchange(port, [bytes], 'waits', patienceMs, () => false);
    last = JSON.stringify(came.toString('latin1', 0, 60));
    if (came.toString('latin1', 0, 13) === 'HTTP/1.1 200 ') return undefined;
  }
  return last;
}

function note({ violations }: Session, { number, sent, answer, came }: Case, what: string): void {
  violations.push({ number, what, request: sent.bytes, answer: answer?.bytes, came });
}

/** The process has ended, or answers no more: any case that has no reply may be why. */
function noteEnd(session: Session, batch: readonly Case[], error: unknown): void {
  const why = [String(error), ...session.log.take().faults, session.gateway.errors().slice(0, 2_000)].join(
    ' ',
  );
  const open = batch.filter(({ came }) => came.length === 0).slice(0, maxViolations);
  for (const made of open.length === 0 ? batch.slice(0, 1) : open)
    note(session, made, `the gateway ended: ${why}`);
}

/**
 * A text that keeps the gateway's processor busy holds up all callers. Processor time is judged, and beside what this
 * process took for the same batch (about as much): a slow or busy machine is no finding.
 */
const maxCpuRatio = 3;
const unsuspiciousCpuSeconds = 2;

function noteCpu(session: Session, first: Case, cpuSeconds: number): void {
  const own = process.cpuUsage(session.ownCpu);
  const ownSeconds = (own.user + own.system) / 1e6;
  const tookSeconds = cpuSeconds - session.cpuSeconds;
  session.ownCpu = process.cpuUsage();
  session.cpuSeconds = cpuSeconds;
  if (tookSeconds <= Math.max(unsuspiciousCpuSeconds, maxCpuRatio * ownSeconds)) return;
  note(
    session,
    first,
    `its batch took ${tookSeconds.toFixed(1)} s of processor time, ours ${ownSeconds.toFixed(1)} s`,
  );
}

/** What can only be told when all lines of a batch are in the log. */
async function checkBatch(session: Session, batch: readonly Case[]): Promise<void> {
  const { gateway, log, upstream } = session;
  const [first] = batch;
  if (first === undefined) return;
  const { started, done, cpuSeconds } = await countsOf(gateway, log);
  noteCpu(session, first, cpuSeconds);
  if (started !== done || done !== log.requests) {
    note(session, first, `in its batch: ${started} requests begun, ${done} counted, ${log.requests} lines`);
  }
  const lines = log.take();
  for (const what of lines.faults) note(session, first, `in the log of its batch: ${what}`);
  for (const made of batch) {
    for (const { id, status } of made.logged) {
      const at = lines.statuses.get(id)?.indexOf(status) ?? -1;
      if (at === -1) note(session, made, `no line for ${id} with ${status}`);
      else lines.statuses.get(id)?.splice(at, 1);
    }
  }
  for (const { number, what } of upstream.takeFoul()) {
    note(session, batch.find((made) => made.number === number) ?? first, what);
  }
  if (gateway.errors() !== '') note(session, first, `on standard error: ${gateway.errors().slice(0, 1_000)}`);
}

interface Counts {
  readonly started: number;
  readonly done: number;
  /** Used by the process since its start. */
  readonly cpuSeconds: number;
}

/** The gateway's own counts once nothing is under way, and its lines have had time to come. */
async function countsOf({ adminPort }: Deployed, log: LogWatch): Promise<Counts> {
  const endMs = performance.now() + patienceMs;
  for (;;) {
    const { value, sum } = parseExposition(await metricsText(adminPort));
    const started = value('analytics_gateway_requests_started_total') ?? 0;
    const done = sum('analytics_gateway_requests_total');
    const cpuSeconds = value('process_cpu_seconds_total') ?? 0;
    if ((started === done && done === log.requests) || performance.now() > endMs)
      return { started, done, cpuSeconds };
    await sleep(50);
  }
}

function metricsText(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path: '/metrics', agent: false }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      incoming.on('end', () => resolve(text));
      incoming.on('error', reject);
    }).on('error', reject);
  });
}

async function stop({ gateway, violations }: Session): Promise<void> {
  gateway.signal('SIGTERM');
  const exit = await gateway.exited;
  if (exit === 0 || violations.length > 0) return;
  const nothing = { request: Buffer.alloc(0), answer: undefined, came: Buffer.alloc(0) };
  violations.push({ number: -1, what: `exit status ${exit} after SIGTERM: ${gateway.errors()}`, ...nothing });
}

interface LogWatch {
  read(line: string): void;
  /** Lines about requests since the start. */
  readonly requests: number;
  /** What was read since the last call. */
  take(): { readonly statuses: Map<string, number[]>; readonly faults: readonly string[] };
}

/** Searches every line for the secrets, and sorts those about requests by their ids. */
function watchLog(secrets: readonly string[]): LogWatch {
  let statuses = new Map<string, number[]>();
  let faults: string[] = [];
  let requests = 0;
  return {
    get requests() {
      return requests;
    },
    read(line) {
      faults.push(...secretsIn(line, secrets).map((what) => `${what}: ${line.slice(0, 300)}`));
      const facts = JSON.parse(line) as Record<string, unknown>;
      const { level, kind, msg, requestId, status } = facts;
      if ((level === 'error' && kind !== 'leak') || level === 'fatal') faults.push(line.slice(0, 1_000));
      if (msg !== 'request') return;
      requests += 1;
      const id = String(requestId);
      statuses.set(id, [...(statuses.get(id) ?? []), Number(status)]);
    },
    take() {
      const taken = { statuses, faults };
      statuses = new Map();
      faults = [];
      return taken;
    },
  };
}
