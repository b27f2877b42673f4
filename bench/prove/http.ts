/**
 * The gateway behind and before other people's servers. Behind one: what it forwards of each message, the gateway reads
 * as the same requests, or refuses. Before one: what the gateway sends up is one request to the server too, and each
 * caller gets the answer to its own. After every message an ordinary read must find its way.
 *
 *   node bench/prove/http.ts [SERVER…]     (by program: nginx, squid …)
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type StandIn, standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { upstreamAnswers } from '../../test/support/wire-cases.ts';
import { type Deployed, startDeployed } from '../deployed.ts';
import { freePort, startProgram } from '../process.ts';
import { type Faults, idAsText, idIn, judgeLink, judgeUpstream, originForm, reads } from './http/judge.ts';
import { oddAnswers, payloads } from './http/payloads.ts';
import { exchange, type Recorder, startRecorder } from './http/recorder.ts';
import { type HttpServer, httpServers, versionOf } from './http/servers.ts';
import { readResponses, readStrictly } from './http/strict-parser.ts';
import { Suite } from './suite.ts';

const messages = payloads((id) => `${reads}?n=${id}`);
const atOnce = 8;
const quietMs = 60;
/** Ids of ordinary reads begin here. */
let nextId = messages.length;

/** Each answer says which read it answers. */
const echo = ({ target }: { target: string }) => ({ body: JSON.stringify({ target }) });

function startGateway(folder: string, upstreamPort: number): Promise<Deployed> {
  return startDeployed({
    folder,
    settings: {
      UPSTREAM_BASE_URL: `http://127.0.0.1:${upstreamPort}/api`,
      UPSTREAM_API_KEY: standInKey,
      UPSTREAM_API_KEY_CHECK: 'off',
      CACHE_TTL: '0s',
      RETRY_LIMIT: '0',
    },
    onLine: () => {},
  });
}

/** An ordinary read. Servers close connections of their own accord, so it may be tried again. */
async function readWell(port: number, maxTries = 20): Promise<string | undefined> {
  let came = '';
  for (let tries = 0; tries < maxTries; tries++) {
    const target = `${reads}?n=${nextId++}`;
    came = await exchange(
      port,
      `GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      2_000,
    );
    const [answer] = readResponses(came, ['GET']);
    if (answer?.status === 200) {
      return answer.body === JSON.stringify({ target })
        ? undefined
        : `a read got ${answer.body.slice(0, 100)}`;
    }
    await sleep(100);
  }
  return `reads fail: ${came.slice(0, 200)}`;
}

/** Sends all messages, and in between ordinary reads. */
async function sendMessages(port: number, faults: Faults): Promise<void> {
  for (let first = 0; first < messages.length; first += atOnce) {
    const some = messages.slice(first, first + atOnce).map(async ([, bytes], at) => {
      const came = await exchange(port, bytes, quietMs, 1_000);
      for (const [, id] of came.matchAll(/[?&]n=(\d+)/g)) {
        if (Number(id) !== first + at) faults.set(first + at, `its sender got the answer to n=${id}`);
      }
    });
    await Promise.all(some);
    const fault = await readWell(port);
    if (fault !== undefined) faults.set(first, `among this and the next ${atOnce - 1}: ${fault}`);
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Every message through the server to the gateway. */
async function proveBehind(port: number, { links }: Recorder, upstream: StandIn): Promise<Faults> {
  const faults: Faults = new Map();
  upstream.behave(echo);
  await sendMessages(port, faults);
  for (const link of links) judgeLink(link, faults, originForm);
  judgeUpstream(upstream, links, faults, originForm);
  return faults;
}

/** Every message to the gateway, whose upstream is the server; then each odd answer of what is behind the server. */
async function proveBefore(
  port: number,
  { links }: Recorder,
  upstream: StandIn,
  keepRunning: () => Promise<void>,
): Promise<[Faults, Faults]> {
  const [faults, answerFaults]: [Faults, Faults] = [new Map(), new Map()];
  upstream.behave(echo);
  await sendMessages(port, faults);
  for (const link of links) {
    const { end, reason, requests } = readStrictly(link.sent());
    if (end === 'invalid') faults.set(idIn(requests.at(-1)?.target ?? ''), `the gateway sent up ${reason}`);
    judgeLink(link, faults, idAsText);
  }
  judgeUpstream(upstream, links, faults, idAsText);
  for (const [at, [, answer]] of answersToTry.entries()) {
    upstream.behave(answer, 1);
    const target = `${reads}?n=${nextId++}`;
    // A kept connection has said other answers before this one.
    const before = new Map(links.map((one) => [one, one.answered().length]));
    const came = await exchange(
      port,
      `GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      10_000,
    );
    upstream.behave(echo);
    const [reply, ...more] = readResponses(came, ['GET']);
    // What the server makes of an answer is its own affair: the caller gets what the server said, or a problem.
    const link = links.find(({ sent }) => sent().includes(target));
    const said = link ? readResponses(link.answered().slice(before.get(link) ?? 0), ['GET']) : [];
    const isProblem = (reply?.status ?? 0) >= 400;
    if (
      !reply ||
      more.length > 0 ||
      !(isProblem || reply.status === 205 || said.some(({ body }) => body === reply.body))
    ) {
      answerFaults.set(at, `the caller got ${JSON.stringify(came.slice(0, 300))}`);
    }
    await keepRunning();
    const fault = await readWell(port);
    if (fault !== undefined) answerFaults.set(at, `after it ${fault}`);
  }
  return [faults, answerFaults];
}

const answersToTry = [
  ...upstreamAnswers.map(([name, answer]) => [name, answer] as const),
  ...oddAnswers.map(
    ([name, bytes]) =>
      [
        name,
        {
          raw: (socket: { end(text: string, coding: 'latin1'): unknown }) => void socket.end(bytes, 'latin1'),
        },
      ] as const,
  ),
];

async function prove(server: HttpServer): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));
  const [above, beyond] = [await startStandIn(), await startStandIn()];
  const [front, back] = [await freePort(), await freePort()];
  const gateway = await startGateway(folder, Number(new URL(above.url).port));
  const toGateway = await startRecorder(() => gateway.port);
  const toServer = await startRecorder(() => back);
  const before = await startGateway(folder, toServer.port);
  const ways = [
    { port: front, to: toGateway.port },
    { port: back, to: Number(new URL(beyond.url).port) },
  ];
  const args = server.configure(folder, ways);
  const start = () => startProgram({ command: server.program, args, env: { HOME: folder }, speaks: false });
  let running = await start();
  let deaths = 0;
  const keepRunning = async (): Promise<void> => {
    if (isRunning(running.pid)) return;
    deaths += 1;
    process.stdout.write(`${server.name} has ended: ${running.errors().slice(-500)}\n`);
    running = await start();
  };
  try {
    above.behave(echo);
    beyond.behave(echo);
    for (const port of [front, before.port]) {
      const fault = await readWell(port, 300);
      if (fault !== undefined)
        throw new Error(`${server.name} does not serve: ${fault} ${running.errors().slice(0, 500)}`);
    }
    const behind = await proveBehind(front, toGateway, above);
    const [up, answers] = await proveBefore(before.port, toServer, beyond, keepRunning);
    const leftOut =
      deaths === 0
        ? 'nothing'
        : `${deaths} times the server itself ended on an answer, and was started again`;
    const suite = new Suite(server.name, versionOf(server), leftOut);
    const groups = [
      ['behind it', messages, behind],
      ['before it', messages, up],
      ['answers by it', answersToTry, answers],
    ] as const;
    for (const [where, cases, faults] of groups) {
      for (const [at, [name]] of cases.entries()) {
        await suite.try(`${where}, ${name}`, () => {
          const fault = faults.get(at);
          if (fault !== undefined) throw new Error(fault);
        });
      }
      for (const [id, fault] of faults) {
        if (id < 0 || id >= cases.length)
          await suite.try(`${where}, n=${id}`, () => Promise.reject(new Error(fault)));
      }
    }
    suite.end();
  } finally {
    await running.end();
    for (const one of [gateway, before]) {
      one.signal('SIGTERM');
      await one.exited;
    }
    for (const one of [toGateway, toServer, above, beyond]) await one.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const named = process.argv.slice(2);
for (const server of httpServers) {
  if (named.length === 0 || named.includes(server.program)) await prove(server);
}
