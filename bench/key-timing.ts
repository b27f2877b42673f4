/**
 * Tries to read the upstream key from the times of replies, as a stranger who can connect would: at every exit where a text
 * is searched for the key, in every form, with the log on and silent.
 *
 * It starts the built program with the image's flags twice, with keys that differ in the character behind a beginning that is
 * taken for known, and in the one before a known end. Both are sent texts that go on, or begin, with the one character and
 * with the other. What the texts themselves cost is the same for both gateways, and a stranger can measure it on a copy of
 * the program; so it is subtracted: what is left of a difference tells which key a gateway has. A finding counts where three
 * pairs of processes, one after the other, show it in the same direction.
 *
 *   npm run build && npm run bench:key-timing [-- ROUNDS] [--main dist/main.js] [--only EXIT]
 *
 * Exit status 1 where something was found. `--main` takes a program that was built of another version.
 */
import { hash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { mintToken } from '../src/callers/token.ts';
import { imageFlags } from '../test/support/image-flags.ts';
import { below, randomFrom } from '../test/support/random.ts';
import { answers } from './contenders.ts';
import { freePort, type Program, startProgram } from './process.ts';
import { median } from './rounds.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    main: { type: 'string', default: 'dist/main.js' },
    only: { type: 'string' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
  },
});
/** Each sends both texts to both gateways once. */
const rounds = Number(positionals[0] ?? 200);
const seed = Number(values.seed);
if (!(rounds > 0) || !Number.isInteger(seed)) {
  throw new TypeError('npm run bench:key-timing [-- ROUNDS] [--main FILE] [--only EXIT] [--seed N]');
}

const random = randomFrom(seed);
const letters = 'pqrstuvxy';
const word = (length: number): string =>
  Array.from({ length }, () => letters[below(random, letters.length)]).join('');
/**
 * Of the key, what the stranger has found so far: with the next one, whole groups of three for base64. An end of 16 characters,
 * in base64 of 12, is compared: fewer say nothing.
 */
const known = { beginning: `wak_${word(7)}`, end: word(8) };
const [one = '', other = ''] = [...letters].sort(() => random() - 0.5);
const rest = word(22);
/** In standard deviations: what chance does once in some 15,000 tries, and three times in a row never. */
const tellingZ = 4;
const pairCount = 3;

/** The known part with one more character, on the side where the key goes on. */
const sides: Readonly<Record<string, (candidate: string) => string>> = {
  'from its beginning': (candidate) => known.beginning + candidate,
  'from its end': (candidate) => candidate + known.end,
};

const forms: Readonly<Record<string, (text: string) => string>> = {
  'as it is': (text) => text,
  'percent-encoded': (text) => Buffer.from(text).toString('hex').replace(/../g, '%$&'),
  base64: (text) => Buffer.from(text).toString('base64'),
  hexadecimal: (text) => Buffer.from(text).toString('hex'),
  'a list of bytes': (text) => `${Buffer.from(text).join(',')},`,
  reversed: (text) => [...text].reverse().join(''),
};

const [narrowToken, limitedToken] = [mintToken(), mintToken()];
const reads = '/analytics/reports/:id/';
const accounts = '/api/analytics/accounts/';

interface Exit {
  /** The longest text that is searched there. */
  readonly characters: number;
  /** A request with a text in it. */
  readonly request: (text: string) => { readonly target: string; readonly lines?: readonly string[] };
}

/** Texts of the upstream's answers, by number: its content may be others'. */
const told: string[] = [];
const tell = (text: string): number => told.push(text) - 1;

const exits: Readonly<Record<string, Exit>> = {
  '404, a long path': { characters: 15_000, request: (text) => ({ target: `/${text}` }) },
  '404': { characters: 1_000, request: (text) => ({ target: `/${text}` }) },
  '404 of a caller': { characters: 8_000, request: (text) => ({ target: `/api/${text}` }) },
  '401': {
    characters: 1_000,
    request: (text) => ({ target: `/api/${text}`, lines: [`Authorization: Bearer ${'b'.repeat(40)}`] }),
  },
  '403, not granted': {
    characters: 1_000,
    request: (text) => ({
      target: `/api/analytics/reports/${text}/`,
      lines: [`Authorization: Bearer ${narrowToken}`],
    }),
  },
  '403, a page of another site': {
    characters: 1_000,
    request: (text) => ({
      target: `/api/${text}`,
      lines: ['Origin: https://evil.example', 'Sec-Fetch-Site: cross-site'],
    }),
  },
  '421': {
    characters: 1_000,
    request: (text) => ({ target: `/api/${text}`, lines: ['Host: evil.example'] }),
  },
  '429': {
    characters: 1_000,
    request: (text) => ({ target: `/api/${text}`, lines: [`Authorization: Bearer ${limitedToken}`] }),
  },
  'X-Request-ID': {
    characters: 128,
    request: (text) => ({ target: accounts, lines: [`X-Request-ID: ${text}`] }),
  },
  'a query': { characters: 8_000, request: (text) => ({ target: `${accounts}?q=${text}` }) },
  'a forwarded field': {
    characters: 8_000,
    request: (text) => ({ target: accounts, lines: [`X-Team: ${text}`] }),
  },
  'an answer': { characters: 30_000, request: (text) => ({ target: `${accounts}?n=${tell(text)}` }) },
};

async function startUpstream(): Promise<Server> {
  const server = createServer((request, response) => {
    const number = /[?&]n=(\d+)/.exec(request.url ?? '')?.[1];
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ text: number === undefined ? '' : told[Number(number)] }));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return server;
}

interface Gateway {
  readonly program: Program;
  readonly stopwatch: Stopwatch;
}

async function startGateway(
  folder: string,
  upstream: Server,
  logLevel: string,
  key: string,
): Promise<Gateway> {
  const [port, upstreamPort] = [await freePort(), (upstream.address() as AddressInfo).port];
  const digest = (token: string) => [{ sha256: hash('sha256', token, 'hex') }];
  const callers = [
    { name: 'app', anonymous: true, operations: ['list-accounts', reads] },
    { name: 'narrow', operations: ['list-accounts'], tokens: digest(narrowToken) },
    { name: 'limited', limit: { perSecond: 0.001, burst: 1 }, tokens: digest(limitedToken) },
  ];
  const callersFile = join(folder, 'callers.json');
  writeFileSync(callersFile, JSON.stringify({ callers }), { mode: 0o600 });
  const program = await startProgram({
    command: '/bin/sh',
    args: [
      '-c',
      'exec "$0" "$@" > /dev/null',
      process.execPath,
      ...imageFlags(),
      '--',
      resolve(values.main),
      'serve',
    ],
    env: {
      NODE_ENV: 'production',
      UPSTREAM_BASE_URL: `http://127.0.0.1:${upstreamPort}`,
      UPSTREAM_API_KEY: key,
      UPSTREAM_API_KEY_CHECK: 'off',
      UPSTREAM_READS: reads,
      PORT: String(port),
      ADMIN_PORT: 'off',
      CALLERS_FILE: callersFile,
      CALLER_FAILURES_PER_MINUTE: '0',
      FORWARD_REQUEST_HEADERS: 'x-team',
      CACHE_TTL: '0s',
      LOG_LEVEL: logLevel,
    },
    cwd: folder,
    speaks: false,
  });
  await answers(`http://127.0.0.1:${port}/readyz`);
  return { program, stopwatch: new Stopwatch(port) };
}

/** Sends one request after the other on one connection, and says how long each took, in ms. */
class Stopwatch {
  readonly #port: number;
  #socket: Socket | undefined;

  constructor(port: number) {
    this.#port = port;
  }

  async take(target: string, lines: readonly string[]): Promise<number> {
    this.#socket ??= await this.#open();
    const socket = this.#socket;
    const host = lines.some((line) => line.startsWith('Host:')) ? [] : [`Host: 127.0.0.1:${this.#port}`];
    const head = [`GET ${target} HTTP/1.1`, ...host, ...lines, '', ''].join('\r\n');
    return new Promise((done, failed) => {
      const pieces: Buffer[] = [];
      const startMs = performance.now();
      const onEnd = (): void => failed(new Error('the gateway ended a connection without a reply'));
      const onData = (piece: Buffer): void => {
        pieces.push(piece);
        if (!isWhole(pieces)) return;
        const tookMs = performance.now() - startMs;
        socket.off('data', onData);
        socket.off('end', onEnd);
        if (/^connection: close/im.test(headOf(pieces))) this.close();
        done(tookMs);
      };
      socket.on('data', onData);
      socket.once('end', onEnd);
      socket.write(head);
    });
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #open(): Promise<Socket> {
    return new Promise((done, failed) => {
      const socket = connect({ port: this.#port, host: '127.0.0.1', noDelay: true });
      socket.once('connect', () => done(socket));
      socket.once('error', failed);
    });
  }
}

const headOf = (pieces: readonly Buffer[]): string => (pieces[0] ?? Buffer.alloc(0)).toString('latin1');

function isWhole(pieces: readonly Buffer[]): boolean {
  const head = headOf(pieces);
  const end = head.indexOf('\r\n\r\n');
  if (end === -1) return false;
  const length = Number(/^content-length: (\d+)/im.exec(head.slice(0, end + 2))?.[1] ?? 0);
  return pieces.reduce((sum, { length: bytes }) => sum + bytes, 0) >= end + 4 + length;
}

/** The z of Mann and Whitney's test: how surely the ones are greater (or less) than the others. */
function zOf(ones: readonly number[], others: readonly number[]): number {
  const all = [...ones.map((ms) => ({ ms, own: 1 })), ...others.map((ms) => ({ ms, own: 0 }))];
  all.sort((a, b) => a.ms - b.ms);
  const rankSum = all.reduce((sum, { own }, at) => sum + own * (at + 1), 0);
  const [n, m] = [ones.length, others.length];
  return (rankSum - (n * (n + m + 1)) / 2) / Math.sqrt((n * m * (n + m + 1)) / 12);
}

interface Finding {
  /** How surely the gateways differ in which of the texts takes longer. */
  readonly z: number;
  /** By how much a text takes longer at the gateway whose key goes on as it does, of its time. */
  readonly slower: number;
}

/** Times both texts at both gateways, in turn. */
async function compare(
  gateways: readonly Gateway[],
  exit: Exit,
  form: (candidate: string) => string,
): Promise<Finding> {
  const requests = [one, other].map((candidate) => {
    const piece = form(candidate);
    return exit.request(piece.repeat(Math.floor(exit.characters / piece.length)));
  });
  const all = gateways.flatMap(({ stopwatch }) =>
    requests.map(({ target, lines = [] }) => ({ stopwatch, target, lines, tookMs: [] as number[] })),
  );
  for (let round = -20; round < rounds; round++) {
    for (const { stopwatch, target, lines, tookMs } of [...all].sort(() => random() - 0.5)) {
      const ms = await stopwatch.take(target, lines);
      if (round >= 0) tookMs.push(ms);
    }
  }
  const times = all.map(({ tookMs }) => tookMs);
  const [ones = [], others = [], ones2 = [], others2 = []] = times;
  const differences = ones.map((ms, at) => ms - (others[at] ?? 0));
  const differences2 = ones2.map((ms, at) => ms - (others2[at] ?? 0));
  const slowerMs = (median(ones) - median(others) - median(ones2) + median(others2)) / 2;
  return { z: zOf(differences, differences2), slower: slowerMs / median(times.flat()) };
}

/** Goes on with the next pair while it is told, in the same direction. */
async function tryExit(
  pairs: readonly (readonly Gateway[])[],
  exit: Exit,
  form: (candidate: string) => string,
): Promise<{ readonly isFound: boolean; readonly findings: readonly Finding[] }> {
  const findings: Finding[] = [];
  for (const pair of pairs) {
    const finding = await compare(pair, exit, form);
    findings.push(finding);
    const isTold = Math.abs(finding.z) >= tellingZ && Math.sign(finding.z) === Math.sign(findings[0]?.z ?? 0);
    if (!isTold) return { isFound: false, findings };
  }
  return { isFound: true, findings };
}

const folder = mkdtempSync(join(tmpdir(), 'gateway-key-timing-'));
const upstream = await startUpstream();
let found = 0;
let cells = 0;
process.stdout.write(
  `--seed ${seed}, ${rounds} rounds; for each pair z, and how much slower the right text is\n`,
);
try {
  for (const logLevel of ['info', 'silent']) {
    const pairs: Gateway[][] = [];
    for (let pair = 0; pair < pairCount; pair++) {
      const keys = [one, other].map((next) => known.beginning + next + rest + next + known.end);
      pairs.push(await Promise.all(keys.map((key) => startGateway(folder, upstream, logLevel, key))));
    }
    for (const [name, exit] of Object.entries(exits)) {
      if (values.only !== undefined && name !== values.only) continue;
      for (const [formName, form] of Object.entries(forms)) {
        for (const [sideName, side] of Object.entries(sides)) {
          const { isFound, findings } = await tryExit(pairs, exit, (candidate) => form(side(candidate)));
          cells++;
          if (isFound) found++;
          const figures = findings.map(({ z, slower }) => `${z.toFixed(1)} (${(100 * slower).toFixed(1)} %)`);
          process.stdout.write(
            `log ${logLevel.padEnd(6)}  ${name.padEnd(28)} ${formName.padEnd(16)} ${sideName.padEnd(18)} ${(isFound ? 'FOUND' : 'nothing').padEnd(8)} ${figures.join(', ')}\n`,
          );
        }
      }
    }
    for (const { program, stopwatch } of pairs.flat()) {
      stopwatch.close();
      await program.end();
    }
  }
} finally {
  upstream.close();
  upstream.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
}
process.stdout.write(
  found === 0
    ? `nothing found in ${cells} tries\n`
    : `the next character was found in ${found} of ${cells} tries\n`,
);
if (found > 0) process.exitCode = 1;
