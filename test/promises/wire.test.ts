import { connect } from 'node:net';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { accounts, ask, startPair } from '../support/gateway.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import {
  expectNothingFoul,
  type StartBase,
  startDeployed,
  startSource,
  statusesOf,
  type WireBase,
} from '../support/wire-base.ts';
import { ambiguousRequests, plainRequests, upstreamAnswers } from '../support/wire-cases.ts';

const host = 'Host: localhost\r\n';
/** Answered with 200 by the admin listener. */
const metrics = '/metrics';
/** What a listener may say of a message that it does not read. */
const refusals = [400, 413, 421, 431, 505];

const seed = Number(process.env['WIRE_SEED'] ?? Date.now() % 2 ** 31);
const rounds = Number(process.env['WIRE_ROUNDS'] ?? 400);

const bases: readonly [name: string, start: StartBase][] = [
  ['the gateway from its sources', startSource],
  ["the built program with the image's flags", startDeployed],
];

describe.each(bases)('%s', (_name, start) => {
  const shared = sharedOwner();
  let base: WireBase;
  beforeAll(async () => {
    base = await start(shared, { CACHE_TTL: '0s', RETRY_LIMIT: '0' });
  });
  beforeEach(() => base.standIn.reset());

  /** It runs and answers, and a read that the upstream answers well is a 200. */
  const expectWell = async (): Promise<void> => {
    const where = { host: '127.0.0.1', port: base.port };
    expect((await ask(where, '/livez', {})).status).toBe(200);
    expect((await ask(where, accounts, {})).status).toBe(200);
    expect((await ask({ ...where, port: base.adminPort }, metrics, {})).status).toBe(200);
  };

  // Ten at a time: the admin listener drops connections beyond its 32.
  const outcomes = async (
    cases: readonly (readonly [name: string, bytes: string])[],
    send: (bytes: Buffer) => Promise<string>,
  ): Promise<[name: string, statuses: number[]][]> => {
    const came: [string, number[]][] = [];
    for (let at = 0; at < cases.length; at += 10) {
      const some = cases.slice(at, at + 10).map(async ([name, bytes]): Promise<[string, number[]]> => {
        return [name, statusesOf(await send(Buffer.from(bytes, 'latin1')))];
      });
      came.push(...(await Promise.all(some)));
    }
    return came;
  };

  it('the gateway refuses each ambiguous message of callers once, with one line in the log, and sends nothing up', async () => {
    const came = await outcomes(ambiguousRequests(accounts), (bytes) => base.exchange(bytes, 5_000));
    for (const [name, statuses] of came) {
      expect(statuses, name).toHaveLength(1);
      expect(refusals, name).toContain(statuses[0]);
    }
    expect(base.standIn.requests).toHaveLength(0);
    // The first of the tests that share the gateway: every line is about these.
    const all = came.flatMap(([, statuses]) => statuses).sort();
    const told = () => base.logLines().flatMap(({ status }) => (status === undefined ? [] : [status]));
    await expect.poll(() => told().sort()).toEqual(all);
    await expectWell();
  });

  it('the admin listener refuses each ambiguous message once', async () => {
    const came = await outcomes(ambiguousRequests(metrics), (bytes) => base.exchangeAdmin(bytes, 5_000));
    for (const [name, statuses] of came) {
      expect(statuses, name).toHaveLength(1);
      expect(refusals, name).toContain(statuses[0]);
    }
    expect(base.standIn.requests).toHaveLength(0);
    await expectWell();
  });

  it('both listeners answer each message that only looks dangerous once, as a plain read', async () => {
    const asked = plainRequests(accounts);
    for (const [name, bytes] of asked) {
      expect(statusesOf(await base.exchange(bytes, 50)), name).toEqual([200]);
    }
    expect(base.standIn.requests).toHaveLength(asked.length);
    expectNothingFoul(base);
    for (const [name, bytes] of plainRequests(metrics)) {
      expect(statusesOf(await base.exchangeAdmin(bytes, 50)), name).toEqual([200]);
    }
    await expectWell();
  });

  it('the gateway turns each answer of the upstream into one whole reply, and goes on', async () => {
    const where = { host: '127.0.0.1', port: base.port };
    for (const [name, answer, statuses] of upstreamAnswers) {
      base.standIn.behave(answer, 1);
      const { status, rawHeaders } = await ask(where, accounts, {});
      expect(statuses, name).toContain(status);
      expect(rawHeaders, name).not.toContain('__proto__');
      // A good read in between: what is tried next must not meet an upstream that is held to be down.
      expect((await ask(where, `${accounts}?well`, {})).status, `after ${name}`).toBe(200);
    }
    await expectWell();
  });

  it(`the gateway answers or refuses a request with anything changed in it, never with a 500, and sends nothing foul up (WIRE_SEED=${seed})`, async () => {
    const random = randomFrom(seed);
    const messages = Array.from({ length: rounds }, () => mutated(random));
    const statuses: number[] = [];
    // A few connections at a time, each with its own message.
    for (let at = 0; at < messages.length; at += 40) {
      const came = await Promise.all(messages.slice(at, at + 40).map((bytes) => offer(base.port, bytes)));
      statuses.push(...came.flatMap(statusesOf));
    }
    expectNothingFoul(base);
    // 505 says that it was no HTTP/1 request.
    expect(statuses.filter((status) => status >= 500 && status !== 505)).toEqual([]);
    expect(statuses.length).toBeGreaterThan(rounds / 2);
    await expectWell();
    expect(base.logLines().filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  });
});

it('requests sent in one go are answered one after the other', async () => {
  const pair = await startPair();
  pair.standIn.behave(({ target }) => ({
    latencyMs: target.endsWith('0') ? 40 : 0,
    body: JSON.stringify(target),
  }));
  const sent = Array.from({ length: 10 }, (_, at) => `GET ${accounts}?n=${at} HTTP/1.1\r\n${host}\r\n`);
  const came = await pair.exchange(sent.join(''), 300);
  const targets = [...came.matchAll(/"\/api\/analytics\/accounts\/\?n=(\d)"/g)].map(([, at]) => Number(at));
  expect(targets).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

describe('answers find their way', () => {
  it('200 different requests at once get each its own answer', async () => {
    const { ask, standIn } = await startPair();
    standIn.behave(({ target }) => ({
      latencyMs: (target.length * 7) % 40,
      body: JSON.stringify({ target }),
    }));
    const queries = Array.from({ length: 200 }, (_, at) => `?n=${at}${'x'.repeat(at % 13)}`);
    const came = await Promise.all(queries.map((query) => ask(accounts + query)));
    expect(came.map((one) => one.json()['target'])).toEqual(queries.map((query) => accounts + query));
  });
});

const parts = [
  '\r\n',
  '\n',
  '\r',
  ' ',
  '\t',
  ':',
  '\0',
  '\x7f',
  '\xff',
  ',',
  ';',
  '#',
  '?',
  '//',
  '/../',
  '%2f',
  '%00',
  'http://evil.example',
  '\r\n\r\n',
  'Content-Length: 5\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Connection: x-api-key\r\n',
  'X-API-Key: theirs\r\n',
  'x_api_key: theirs\r\n',
  'Host: evil.example\r\n',
  'Expect: 100-continue\r\n',
  'Upgrade: h2c\r\n',
  '0\r\n\r\n',
  '-1',
  '99999999999999999999',
  'HTTP/1.1',
  'a'.repeat(9_000),
];

function mutated(random: () => number): Buffer {
  let text = `GET ${accounts}?a=1 HTTP/1.1\r\n${host}Accept: */*\r\nX-Request-ID: a-1\r\nConnection: close\r\n\r\n`;
  for (let change = 0; change <= random() * 3; change++) {
    const at = Math.floor(random() * text.length);
    const part = parts[Math.floor(random() * parts.length)] ?? '';
    const cut = random() < 0.5 ? 0 : Math.floor(random() * 8);
    text =
      random() < 0.7
        ? text.slice(0, at) + part + text.slice(at + cut)
        : text.slice(0, at) +
          String.fromCharCode(text.charCodeAt(at) ^ (1 << Math.floor(random() * 8))) +
          text.slice(at + 1);
  }
  return Buffer.from(text, 'latin1');
}

/** Sends a message and the end of it: what is incomplete is then answered as such at once. */
function offer(port: number, bytes: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.end(bytes));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', () => {});
    socket.on('end', () => socket.destroy());
    socket.on('close', () => resolve(Buffer.concat(chunks).toString('latin1')));
  });
}

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
