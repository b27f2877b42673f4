import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { accounts, ask, exchange, startPair } from '../support/gateway.ts';
import { imageFlags } from '../support/image-flags.ts';
import { type Owner, serve, settingsFor, standInFor } from '../support/process.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { type StandIn, standInKey } from '../support/stand-in/stand-in.ts';
import { ambiguousRequests, plainRequests, upstreamAnswers } from '../support/wire-cases.ts';

const host = 'Host: localhost\r\n';
/** Answered with 200 by the admin listener. */
const metrics = '/metrics';
/** What a listener may say of a message that it does not read. */
const refusals = [400, 413, 421, 431, 505];

/** The built program with exactly the flags of the image. */
async function startBase(owner: Owner, own: Record<string, string>) {
  const standIn = await standInFor(owner);
  const settings = { ...settingsFor(standIn.url), ADMIN_PORT: '0', ...own };
  const { port, lines } = await serve(owner, { flags: imageFlags(), settings });
  const { adminUrl } = lines().find((line) => 'adminUrl' in line) ?? {};
  return { standIn, port, adminPort: Number(new URL(String(adminUrl)).port), logLines: lines };
}

/** The statuses of everything that came back on one connection. */
function statusesOf(came: string): number[] {
  return [...came.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

/** What holds whatever is sent: one key on each upstream request, the specified paths only, nothing hidden. */
function expectNothingFoul({ requests }: StandIn): void {
  for (const { rawHeaders, key, method, target } of requests) {
    const keys = rawHeaders.filter((name, at) => at % 2 === 0 && /^x.?api.?key$/i.test(name));
    expect(keys).toHaveLength(1);
    expect([key, method]).toEqual([standInKey, 'GET']);
    expect(target).toMatch(/^\/api\/(?:analytics\/accounts|users\/api-keys)\/(?:\?|$)/);
    expect(target).not.toContain('hidden');
  }
}

describe("the built program with the image's flags", () => {
  const shared = sharedOwner();
  let base: Awaited<ReturnType<typeof startBase>>;
  beforeAll(async () => {
    base = await startBase(shared, { CACHE_TTL: '0s', RETRY_LIMIT: '0' });
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
    const came = await outcomes(ambiguousRequests(accounts), (bytes) => exchange(base.port, bytes, 5_000));
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
    const came = await outcomes(ambiguousRequests(metrics), (bytes) =>
      exchange(base.adminPort, bytes, 5_000),
    );
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
      expect(statusesOf(await exchange(base.port, bytes, 50)), name).toEqual([200]);
    }
    expect(base.standIn.requests).toHaveLength(asked.length);
    expectNothingFoul(base.standIn);
    for (const [name, bytes] of plainRequests(metrics)) {
      expect(statusesOf(await exchange(base.adminPort, bytes, 50)), name).toEqual([200]);
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
