import { Agent, request } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Misbehaviour } from '../../src/stand-in/behaviour.ts';
import { type StandIn, standInKey, startStandIn } from '../../src/stand-in/stand-in.ts';

let standIn: StandIn;
let agent: Agent;

beforeEach(async () => {
  standIn = await startStandIn();
  agent = new Agent({ connections: 1, pipelining: 1, headersTimeout: 1_000, bodyTimeout: 1_000 });
});

afterEach(async () => {
  await agent.destroy();
  await standIn.close();
});

async function read() {
  const answer = await request(`${standIn.url}/analytics/accounts/`, {
    dispatcher: agent,
    headers: { 'x-api-key': standInKey },
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
}

async function failure(): Promise<string> {
  return read().then(
    ({ status }) => `answered ${status}`,
    (error) => error.code ?? error.name,
  );
}

describe('a misbehaviour', () => {
  it('lasts as many requests as told, and the connection with it', async () => {
    standIn.behave({ status: 503 }, 2);
    expect([(await read()).status, (await read()).status, (await read()).status]).toEqual([503, 503, 200]);
    standIn.behave({ status: 500 });
    expect([(await read()).status, (await read()).status]).toEqual([500, 500]);
    standIn.behave(undefined);
    expect((await read()).status).toBe(200);
    expect(standIn.counts).toMatchObject({ connections: 1, byStatus: { 200: 2, 500: 2, 503: 2 } });
  });

  it('can be decided per request', async () => {
    standIn.behave((received) =>
      received.target.includes('accounts') ? { status: 418, reason: 'Tea' } : undefined,
    );
    expect((await read()).status).toBe(418);
  });

  it('can wait for a test', async () => {
    let release = (): void => {};
    standIn.behave({ until: new Promise<void>((resolve) => (release = resolve)), status: 500 });
    const answer = read();
    await standIn.received(1);
    expect(standIn.requests[0]?.status).toBeUndefined();
    release();
    expect((await answer).status).toBe(500);
  });
});

describe('an answer that breaks', () => {
  it.each<[Misbehaviour, string]>([
    [{ resetAt: 'connection' }, 'ECONNRESET'],
    [{ resetAt: 'before-headers' }, 'ECONNRESET'],
    [{ resetAt: 'in-headers' }, 'ECONNRESET'],
    [{ resetAt: 'after-headers' }, 'ECONNRESET'],
    [{ resetAt: 10 }, 'ECONNRESET'],
    [{ finAt: 'before-headers' }, 'UND_ERR_SOCKET'],
    [{ finAt: 'in-headers' }, 'UND_ERR_SOCKET'],
    [{ finAt: 10 }, 'UND_ERR_SOCKET'],
    [{ stallAt: 'before-headers' }, 'UND_ERR_HEADERS_TIMEOUT'],
    [{ stallAt: 10 }, 'UND_ERR_BODY_TIMEOUT'],
    [{ claimLength: (bytes) => bytes + 1, finAt: 'end' }, 'UND_ERR_SOCKET'],
    [{ claimLength: (bytes) => bytes + 1 }, 'UND_ERR_BODY_TIMEOUT'],
    [{ claimLength: (bytes) => [bytes, bytes + 1] }, 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH'],
    [{ framing: 'length-and-chunked' }, 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH'],
    [{ framing: 'no-last-chunk' }, 'UND_ERR_SOCKET'],
    [{ framing: 'bad-chunk-size' }, 'HTTPParserError'],
  ])('%j leaves the reader with %s, and the next request is well', async (misbehaviour, code) => {
    await read();
    standIn.behave(misbehaviour, 1);
    expect(await failure()).toBe(code);
    expect((await read()).status).toBe(200);
    expect(standIn.counts.total).toBe(3);
  });
});
