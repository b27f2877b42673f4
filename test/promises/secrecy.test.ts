import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { LRUCache } from 'lru-cache';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type ProblemCode, problems } from '../../src/errors.ts';
import { adminOutput } from '../support/admin-output.ts';
import { writeCallers } from '../support/callers-fixture.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';
import { formsIn, formsOf, withDecodedBody } from '../support/secret-forms.ts';
import { everyMisbehaviour } from '../support/stand-in/catalogue.ts';
import { type StandIn, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

const found = (text: string): string[] => formsIn(text, standInKey);

let elsewhere: StandIn;
beforeAll(async () => {
  elsewhere = await startStandIn();
});
afterAll(() => elsewhere.close());

/** The bytes of a reply, and those of its body once more without their coding. */
async function rawReply({ exchange }: TestGateway, path: string, ...fields: string[]): Promise<string> {
  const lines = [`GET ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close', ...fields];
  return withDecodedBody(await exchange(`${lines.join('\r\n')}\r\n\r\n`, 5_000));
}

const statusOf = (reply: string): number => Number(/^HTTP\/1\.1 (\d{3}) /.exec(reply)?.[1]);

describe('the key is in no byte that leaves, whatever the upstream does', () => {
  const names = everyMisbehaviour('http://127.0.0.1:1').map(({ name }) => name);

  it.concurrent.for(names)(
    'the key is in no byte that leaves, whatever the upstream does: %s',
    async (name, { expect, onTestFinished }) => {
      const pair = await startPair(
        {
          UPSTREAM_TIMEOUT: '300ms',
          REQUEST_TIMEOUT: '900ms',
          UPSTREAM_MAX_BODY: '64KiB',
          RETRY_LIMIT: '1',
          LOG_LEVEL: 'trace',
          ADMIN_PORT: '0',
        },
        {},
        onTestFinished,
      );
      const { standIn, logText } = pair;
      const { behaviour, stalls } =
        everyMisbehaviour(elsewhere.origin).find((one) => one.name === name) ?? {};
      standIn.behave(behaviour);
      const first = rawReply(pair, accounts);
      // What is stored is compressed for those who come later.
      if (stalls !== true) await first;
      const replies = await Promise.all([
        first,
        rawReply(pair, accounts, `X-API-Key: ${standInKey}`, 'Accept-Encoding: gzip'),
        rawReply(pair, `${accounts}?other`, `Authorization: Bearer ${standInKey}`, 'Accept-Encoding: br'),
      ]);
      expect(found(replies.join('\n'))).toEqual([]);
      const admin = await adminOutput(pair, standInKey);
      expect(admin).toContain('analytics_gateway_upstream_attempts_total{');
      expect(found(admin)).toEqual([]);
      expect(found(logText())).toEqual([]);
      for (const status of replies.map(statusOf)) {
        expect(status).toBeGreaterThanOrEqual(200);
        expect([401, 206]).not.toContain(status);
      }
      expect(standIn.counts.connections).toBeGreaterThan(0);
      expect(standIn.requests.every(({ key }) => key === standInKey)).toBe(true);
      expect(elsewhere.requests).toHaveLength(0);
    },
  );
});

describe('the key is in no problem', () => {
  const none = () => {};
  const mute = { CACHE_TTL: '0s' };

  const keyInField = `User-Agent: ${standInKey}`;

  /** How each code comes about, with the key wherever the request that causes it can have it. */
  const causes: Record<Exclude<ProblemCode, 'internal-error'>, (drive: Drive) => Promise<string>> = {
    'caller-unauthenticated': async ({ start }) =>
      rawReply(await start({ CALLERS_FILE: writeCallers([]) }), accounts, `X-API-Key: ${standInKey}`),
    'caller-forbidden': async ({ start }) => {
      const callers = writeCallers([{ name: 'everyone', anonymous: true, operations: ['list-api-keys'] }]);
      return rawReply(await start({ CALLERS_FILE: callers }), accounts, keyInField);
    },
    'origin-not-allowed': async ({ start }) =>
      rawReply(await start(), accounts, `Origin: https://${standInKey}`, 'Sec-Fetch-Site: cross-site'),
    'caller-rate-limited': async ({ start }) => {
      const pair = await start({ CALLERS_FILE: writeCallers([]), CALLER_FAILURES_PER_MINUTE: '1' });
      const replies = [];
      for (let tries = 0; tries < 3; tries++) {
        replies.push(await rawReply(pair, accounts, `X-API-Key: ${standInKey}`));
      }
      return replies.join('\n');
    },
    'host-not-allowed': async ({ start }) => {
      const { exchange } = await start();
      return exchange(`GET /${standInKey} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`);
    },
    'invalid-request': async ({ start }) => {
      const pair = await start();
      const targets = [
        `${accounts}?api_key=${standInKey}`,
        `${accounts}?${standInKey}`,
        `/api/${standInKey}/`,
      ];
      const replies = [];
      for (const target of targets) replies.push(await rawReply(pair, target));
      return replies.join('\n');
    },
    'uri-too-long': async ({ start }) =>
      rawReply(await start(), `${accounts}?${`${standInKey}&`.repeat(300)}`),
    'unknown-operation': async ({ start }) => rawReply(await start(), '/api/nothing/', keyInField),
    'method-not-allowed': async ({ start }) => {
      const { exchange } = await start();
      return exchange(
        `DELETE ${accounts} HTTP/1.1\r\nHost: localhost\r\n${keyInField}\r\nConnection: close\r\n\r\n`,
      );
    },
    'upstream-rate-limited': async ({ start, expect }) => {
      const pair = await start({ REQUEST_TIMEOUT: '1s' });
      pair.standIn.behave({ status: 429, headers: { 'retry-after': '60' }, echo: { in: 'body' } });
      const replies = [await rawReply(pair, accounts), await rawReply(pair, `${accounts}?other`, keyInField)];
      // It holds back all callers, whatever else was in it.
      expect(pair.standIn.requests).toHaveLength(1);
      return replies.join('\n');
    },
    'upstream-key-rejected': async ({ start }) => {
      const pair = await start();
      pair.standIn.behave({ status: 401, echo: { in: 'body' } });
      return rawReply(pair, accounts);
    },
    'upstream-key-missing': async ({ start }) => {
      const script = `echo ${standInKey}; echo ${standInKey} >&2; exit 1`;
      return rawReply(await start({ UPSTREAM_API_KEY_FROM: `exec:sh -c '${script}'` }), accounts);
    },
    'upstream-unreachable': async ({ start }) => {
      const pair = await start();
      await pair.standIn.refuseConnections(true);
      return rawReply(pair, accounts);
    },
    'upstream-invalid-response': async ({ start }) => {
      const pair = await start();
      pair.standIn.behave({ echo: { in: 'body' }, framing: 'chunked' });
      return rawReply(pair, accounts);
    },
    'upstream-timeout': async ({ start }) => {
      // No retry: on a busy machine it may come so late that the gate, and not the time of the attempt, ends it.
      const pair = await start({ UPSTREAM_TIMEOUT: '100ms', REQUEST_TIMEOUT: '200ms', RETRY_LIMIT: '0' });
      pair.standIn.behave({ echo: { in: 'body' }, stallAt: 60 });
      return rawReply(pair, accounts);
    },
    'not-in-cache': async ({ start }) => rawReply(await start(), accounts, 'Cache-Control: only-if-cached'),
    overloaded: async ({ start, expect }) => {
      const pair = await start({ ...mute, REQUEST_TIMEOUT: '5s' });
      pair.standIn.behave({ stallAt: 'before-headers' });
      // As many as one caller may have waiting, and those who are up already: sixteen on each connection.
      const requests = (at: number): string[] =>
        Array.from(
          { length: 16 },
          (_, number) => `GET ${accounts}?${at}-${number} HTTP/1.1\r\nHost: localhost\r\n`,
        );
      const sockets = Array.from({ length: 64 }, (_, at) => {
        const socket = connect(pair.port, '127.0.0.1').on('error', none);
        socket.write(`${requests(at).join('\r\n')}\r\n`);
        return socket;
      });
      await expect.poll(() => pair.gateway.waiting).toBeGreaterThanOrEqual(1_008);
      const reply = await rawReply(pair, `${accounts}?other`, keyInField);
      for (const socket of sockets) socket.destroy();
      return reply;
    },
    'shutting-down': async ({ start }) => {
      const pair = await start({ SHUTDOWN_GRACE: '300ms' });
      pair.standIn.behave({ stallAt: 'before-headers' });
      const reply = rawReply(pair, accounts, keyInField);
      await pair.standIn.received(1);
      const admin = await adminOutput(pair, standInKey);
      await pair.gateway.drain();
      return `${await reply}\n${admin}`;
    },
  };

  interface Drive {
    start(settings?: Record<string, string>): Promise<TestGateway>;
    /** A concurrent test's own. */
    readonly expect: typeof expect;
  }

  it.concurrent.for(Object.keys(causes) as (keyof typeof causes)[])(
    'the key is in no problem: %s',
    async (code, { expect, onTestFinished }) => {
      const started: TestGateway[] = [];
      const start: Drive['start'] = async (settings = {}) => {
        const pair = await startPair(
          { LOG_LEVEL: 'trace', ADMIN_PORT: '0', ...settings },
          {},
          onTestFinished,
        );
        started.push(pair);
        return pair;
      };
      const reply = await causes[code]({ start, expect });
      expect(reply).toContain(`"code":"${code}"`);
      expect(found(reply)).toEqual([]);
      for (const pair of started) {
        // When it has stopped, it cannot be asked any more.
        if (code !== 'shutting-down') expect(found(await adminOutput(pair, standInKey))).toEqual([]);
        expect(found(pair.logText())).toEqual([]);
      }
    },
  );

  it('no internal-error holds the key', async () => {
    const pair = await startPair({ LOG_LEVEL: 'trace', ADMIN_PORT: '0' });
    // It is looked up only where it is stored.
    await rawReply(pair, accounts);
    // Nothing that callers or the upstream do brings it about, so a fault of our own is put in, with the key in it.
    vi.spyOn(LRUCache.prototype, 'get').mockImplementation(() => {
      const cause = new Error(`X-API-Key: ${standInKey}`);
      throw Object.assign(new Error(`a fault with ${standInKey}`, { cause }), { key: standInKey });
    });
    const reply = await rawReply(pair, accounts);
    expect(reply).toContain('"code":"internal-error"');
    expect(found(reply)).toEqual([]);
    expect(found(await adminOutput(pair, standInKey))).toEqual([]);
    expect(pair.logText()).toContain('a fault with [key ');
    expect(found(pair.logText())).toEqual([]);
  });

  it('the key is not on the pages about problems', async () => {
    const pair = await startPair();
    for (const code of Object.keys(problems)) {
      expect(found(await rawReply(pair, `/problems/${code}?${standInKey}`))).toEqual([]);
    }
    expect(found(await rawReply(pair, `/problems/${standInKey}`))).toEqual([]);
    for (const path of ['/livez', '/readyz', '/', `/${standInKey}`]) {
      expect(found(await rawReply(pair, path, `X-Request-ID: ${standInKey}`))).toEqual([]);
    }
    expect(found(pair.logText())).toEqual([]);
  });
});

describe('the search for the key', () => {
  it('the search for the key finds each form it looks for', () => {
    for (const { name, text } of formsOf(standInKey)) expect(found(`a ${text} b`), name).toContain(name);
  });

  it('the search for the key looks into compressed answers', () => {
    const body = gzipSync(`a ${standInKey} b`).toString('latin1');
    expect(found(withDecodedBody(`HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n${body}`))).toContain(
      'raw',
    );
  });
});
