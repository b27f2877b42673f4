import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ReceivedRequest } from '../../src/demo/stand-in.ts';
import { checkWaitMs } from '../../src/key/suspicion.ts';
import { type AtEnd, accounts, ask, type Came, startPair, type TestGateway } from '../support/gateway.ts';
import { type KubernetesMount, mountSecret } from '../support/kubernetes-mount.ts';
import { startProduct } from '../support/product.ts';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

const keyOf = (version: number): string => `key-of-version-${version}-0123456789`;
/** So that no store without a watch is asked again by itself. */
const never = '24h';
/** Soon on any machine; what is promised within a time says that time itself. */
const soon = { timeout: 60_000 };

interface Mounted extends TestGateway {
  readonly mount: KubernetesMount;
}

/** A gateway whose key is on a mount, before a stand-in that takes that key. */
async function startMounted(
  settings: Record<string, string> = {},
  standInOptions: StandInOptions = {},
  atEnd: AtEnd = onTestFinished,
): Promise<Mounted> {
  const mount = mountSecret(keyOf(1), atEnd);
  const pair = await startPair(
    { UPSTREAM_API_KEY: '', UPSTREAM_API_KEY_FROM: `file:${mount.path}`, ...settings },
    { key: keyOf(1), ...standInOptions },
    atEnd,
  );
  return { ...pair, mount };
}

/** The upstream takes these keys from now on, and no other. */
function accept(standIn: StandIn, ...keys: string[]): void {
  standIn.keys.clear();
  for (const key of keys) standIn.keys.add(key);
}

const events = (pair: TestGateway, kind: string): Record<string, unknown>[] =>
  pair.logLines().filter((line) => line['kind'] === kind);

/** A request of the gateway's own: no caller's id is on it. */
const isCheck = ({ headers }: ReceivedRequest): boolean => headers['x-request-id'] === undefined;

const codeOf = (came: Came): unknown => came.json()['code'];

/** Loops of uncached reads, until told to stop. */
function startLoops(pair: TestGateway, count: number, atEnd: AtEnd) {
  let stopped = false;
  let asked = 0;
  const failures: string[] = [];
  const agent = new Agent({ keepAlive: true });
  const loops = Array.from({ length: count }, async () => {
    while (!stopped) {
      const number = ++asked;
      const came = await pair.ask(`${accounts}?read=${number}`, { agent }).catch(String);
      if (typeof came === 'string') failures.push(`${number}: ${came}`);
      else if (came.status !== 200) failures.push(`${number}: ${came.status} ${came.body.toString()}`);
    }
  });
  atEnd(() => {
    stopped = true;
    agent.destroy();
  });
  return {
    failures,
    get asked() {
      return asked;
    },
    /** Resolves when so many more were begun. */
    more: async (requests: number) => {
      const goal = asked + requests;
      while (asked < goal && !stopped) await sleep(2);
    },
    stop: async () => {
      stopped = true;
      await Promise.all(loops);
    },
  };
}

describe('a key is replaced without one failed request', () => {
  it.concurrent.for([
    ['in the same instant', 0, 'off'],
    ['150 ms before the new one is there', 150, 'off'],
    ['in the same instant, where a new key is tried first', 0, 'on'],
    ['150 ms before the new one is there, where a new key is tried first', 150, 'on'],
  ] as const)(
    'under 20 loops, four times, with the old one revoked %s',
    async ([_when, lateMs, UPSTREAM_API_KEY_CHECK], { expect, onTestFinished }) => {
      const pair = await startMounted({ UPSTREAM_API_KEY_CHECK }, { latencyMs: 15 }, onTestFinished);
      const { standIn, mount, gateway } = pair;
      const loops = startLoops(pair, 20, onTestFinished);
      for (const version of [2, 3, 4, 5]) {
        await loops.more(150);
        await expect.poll(() => gateway.waiting, { ...soon, interval: 1 }).toBeGreaterThan(10);
        const before = standIn.counts.total;
        const begunMs = performance.now();
        accept(standIn, keyOf(version));
        if (lateMs > 0) await sleep(lateMs);
        mount.swap(keyOf(version));
        await loops.more(150);
        const sent = standIn.requests.slice(before);
        // One; where a slow machine takes longer, one more for each time that a check is waited for.
        const mostChecks = 1 + Math.floor((performance.now() - begunMs) / checkWaitMs);
        expect(sent.filter(isCheck).length).toBeLessThanOrEqual(mostChecks);
        const refused = sent
          .filter((request) => request.status === 401 && !isCheck(request))
          .map(({ headers }) => headers['x-request-id']);
        expect(refused.length).toBeLessThanOrEqual(20);
        expect(new Set(refused).size).toBe(refused.length);
      }
      await loops.stop();
      expect(loops.asked).toBeGreaterThanOrEqual(1_000);
      expect(loops.failures).toEqual([]);
      expect(events(pair, 'rotated').map(({ generation }) => generation)).toEqual([2, 3, 4, 5]);
      expect(events(pair, 'rejected')).toEqual([]);
      expect(events(pair, 'reload-failed')).toEqual([]);
    },
  );

  it.concurrent('an answer fetched with the old key is never given to later callers', async ({
    expect,
    onTestFinished,
  }) => {
    const pair = await startMounted({}, {}, onTestFinished);
    const { standIn, mount, ask } = pair;
    accept(standIn, keyOf(1), keyOf(2));
    let release = (): void => {};
    const until = new Promise<void>((resolve) => {
      release = resolve;
    });
    standIn.behave((request) => {
      const version = request.key === keyOf(1) ? 1 : 2;
      const isHeld = version === 1 && request.target.endsWith('?held');
      return { body: JSON.stringify({ version }), ...(isHeld ? { until } : {}) };
    });
    expect((await ask(accounts)).json()).toEqual({ version: 1 });
    const early = ask(`${accounts}?held`);
    await standIn.received(2);
    mount.swap(keyOf(2));
    await expect.poll(() => events(pair, 'rotated'), soon).toHaveLength(1);
    expect((await ask(accounts)).json()).toEqual({ version: 2 });
    // Asks for what is in flight with the old key: it does not join.
    expect((await ask(`${accounts}?held`)).json()).toEqual({ version: 2 });
    release();
    // Who asked before gets what was asked for, and leaves nothing behind for others.
    expect((await early).json()).toEqual({ version: 1 });
    const later = await ask(`${accounts}?held`);
    expect(later.json()).toEqual({ version: 2 });
    expect(later.headers['cache-status']).toContain('; hit');
  });

  it('a key is replaced within two seconds without a request, and with no 401 where the old one stays good for as long', async () => {
    const pair = await startMounted();
    const { standIn, mount, ask } = pair;
    mount.swap(keyOf(2));
    await expect.poll(() => events(pair, 'rotated'), { timeout: 2_000, interval: 10 }).toHaveLength(1);
    accept(standIn, keyOf(2));
    expect((await ask(accounts)).status).toBe(200);
    expect(standIn.counts.byStatus[401]).toBeUndefined();
  });
});

describe('a new key that the upstream refuses replaces none that works', () => {
  const trying = { UPSTREAM_API_KEY_CHECK: 'on', CACHE_TTL: '0s', ADMIN_PORT: '0' };
  const codes = async (pair: TestGateway): Promise<readonly string[]> =>
    ((await pair.askAdmin('/status')).json()['reasons'] as { code: string }[]).map(({ code }) => code);

  it.concurrent('a new key that the upstream refuses costs no request under load; the verdict names it until the right one is accepted', async ({
    expect,
    onTestFinished,
  }) => {
    const pair = await startMounted(trying, { latencyMs: 5 }, onTestFinished);
    const { standIn, mount } = pair;
    const loops = startLoops(pair, 5, onTestFinished);
    await loops.more(20);
    mount.swap(keyOf(9));
    await expect.poll(() => events(pair, 'new-key-refused'), soon).toHaveLength(1);
    await loops.more(50);
    expect(await codes(pair)).toEqual(['new-key-refused']);
    expect(standIn.requests.filter((sent) => sent.key === keyOf(9) && !isCheck(sent))).toEqual([]);
    accept(standIn, keyOf(1), keyOf(2));
    mount.swap(keyOf(2));
    await expect.poll(() => events(pair, 'accepted'), soon).toHaveLength(1);
    accept(standIn, keyOf(2));
    await loops.more(50);
    await loops.stop();
    expect(loops.failures).toEqual([]);
    expect(standIn.counts.byStatus[401]).toBe(standIn.requests.filter(({ key }) => key === keyOf(9)).length);
    expect(await codes(pair)).toEqual([]);
    expect(pair.logLines().flatMap(({ kind }) => (kind === undefined ? [] : [kind]))).toEqual([
      ...['loaded', 'rotated', 'new-key-refused', 'rotated', 'accepted'],
    ]);
    expect(pair.logText()).not.toContain('of-version-9');
  });
});

describe('a store that cannot be watched', () => {
  it('a store that cannot be watched is read again at once when the key is refused, once for all refused requests', async () => {
    const place = folder(onTestFinished);
    const [file, reads] = [join(place, 'key'), join(place, 'reads')];
    writeFileSync(file, keyOf(1));
    writeFileSync(reads, '');
    const pair = await startPair(
      {
        UPSTREAM_API_KEY: '',
        UPSTREAM_API_KEY_FROM: `exec:sh -c 'echo >> ${reads}; cat ${file}'`,
        UPSTREAM_API_KEY_REFRESH: never,
        // Its own read at the start would be one more 401 where the machine is slow.
        UPSTREAM_API_KEY_CHECK: 'off',
      },
      { key: keyOf(1), latencyMs: 15 },
    );
    await pair.gateway.ready;
    writeFileSync(file, keyOf(2));
    accept(pair.standIn, keyOf(2));
    const came = await Promise.all(
      Array.from({ length: 50 }, (_, number) => pair.ask(`${accounts}?${number}`)),
    );
    expect(came.map(({ status }) => status)).toEqual(Array(50).fill(200));
    // At the start, and now.
    expect(readFileSync(reads, 'utf8')).toBe('\n\n');
    // As many as the gate lets up at once before it knows the upstream.
    expect(pair.standIn.counts.byStatus[401]).toBeLessThanOrEqual(10);
  });
});

describe('a bad value never replaces a good key', () => {
  it('a key file that disappears never replaces a good key; when it returns it is read', async () => {
    const pair = await startMounted();
    const { standIn, mount, ask, gateway } = pair;
    mount.remove();
    await expect.poll(() => events(pair, 'reload-failed'), soon).toHaveLength(1);
    await gateway.reload();
    expect(events(pair, 'reload-failed')).toMatchObject([
      { reason: expect.stringContaining('does not exist') },
    ]);
    expect((await ask(accounts)).status).toBe(200);
    accept(standIn, keyOf(2));
    mount.swap(keyOf(2));
    await expect.poll(() => events(pair, 'rotated'), soon).toHaveLength(1);
    expect((await ask(`${accounts}?later`)).status).toBe(200);
  });
});

describe('while the upstream refuses the key', () => {
  it.concurrent('callers get upstream-key-rejected or the stale answer while the upstream refuses the key, and only the check goes up', async ({
    expect,
    onTestFinished,
  }) => {
    const pair = await startMounted({}, { cacheControl: 'max-age=0, stale-if-error=60' }, onTestFinished);
    const { standIn, mount, ask } = pair;
    const good = await ask(accounts);
    accept(standIn, keyOf(2));
    const first = await ask(`${accounts}?first`);
    expect(first.json()).toMatchObject({ status: 502, code: 'upstream-key-rejected' });
    expect(first.headers['www-authenticate']).toBeUndefined();
    expect(first.headers['proxy-status']).toContain('received-status=401');
    expect(events(pair, 'rejected')).toHaveLength(1);

    const before = standIn.counts.total;
    const came = await Promise.all(
      Array.from({ length: 50 }, (_, number) => ask(`${accounts}?rejected=${number}`)),
    );
    expect(new Set(came.map(codeOf))).toEqual(new Set(['upstream-key-rejected']));
    const stale = await ask(accounts);
    expect(stale).toMatchObject({ status: 200, body: good.body });
    expect(stale.headers['cache-status']).toContain('detail=stale-if-error');
    expect((await ask('/readyz')).status).toBe(200);
    // Two checks at most in the second this may take: the one at once, and the next.
    const heard = standIn.requests.slice(before);
    expect(heard.length).toBeLessThanOrEqual(2);
    expect(heard.filter((request) => !isCheck(request))).toEqual([]);

    mount.swap(keyOf(2));
    await expect.poll(async () => (await ask(`${accounts}?first`)).status, soon).toBe(200);
    expect(events(pair, 'rotated')).toHaveLength(1);
  });
});

describe('the previous key', () => {
  it.concurrent('the previous key is tried when the newest is refused, and used from then on', async ({
    expect,
    onTestFinished,
  }) => {
    const previous = mountSecret(keyOf(0), onTestFinished);
    const pair = await startMounted(
      { UPSTREAM_API_KEY_PREVIOUS_FROM: `file:${previous.path}` },
      {},
      onTestFinished,
    );
    const { standIn, mount, ask } = pair;
    // Rotated here before it is taken there.
    accept(standIn, keyOf(0));
    const came = await Promise.all(Array.from({ length: 10 }, (_, number) => ask(`${accounts}?${number}`)));
    expect(came.map(({ status }) => status)).toEqual(Array(10).fill(200));
    expect(events(pair, 'fell-back')).toHaveLength(1);
    const before = standIn.counts.total;
    expect((await ask(`${accounts}?later`)).status).toBe(200);
    expect(standIn.requests.slice(before).map(({ key }) => key)).toEqual([keyOf(0)]);

    accept(standIn, keyOf(2));
    mount.swap(keyOf(2));
    await expect.poll(() => events(pair, 'rotated'), soon).toHaveLength(1);
    expect((await ask(`${accounts}?latest`)).status).toBe(200);
  });
});

/** A folder that goes with the test. */
function folder(atEnd: AtEnd): string {
  const made = mkdtempSync(join(tmpdir(), 'rotation-'));
  atEnd(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

describe('the process', () => {
  it.concurrent('the process reads the key again on SIGHUP', async ({ expect, onTestFinished }) => {
    const file = join(folder(onTestFinished), 'key');
    writeFileSync(file, keyOf(1));
    const standIn = await startStandIn({ key: keyOf(1) });
    onTestFinished(() => standIn.close());
    const product = startProduct(['serve'], {
      atEnd: onTestFinished,
      settings: {
        UPSTREAM_BASE_URL: standIn.url,
        UPSTREAM_API_KEY_FROM: `exec:cat ${file}`,
        UPSTREAM_API_KEY_REFRESH: never,
        PORT: '0',
      },
    });
    const port = Number(new URL(await product.url()).port);
    const read = (path: string): Promise<Came> => ask({ host: '127.0.0.1', port }, path, {});
    await expect.poll(async () => (await read('/readyz')).status, soon).toBe(200);
    expect((await read(accounts)).status).toBe(200);
    writeFileSync(file, keyOf(2));
    accept(standIn, keyOf(2));
    product.process.kill('SIGHUP');
    await expect.poll(product.stdout, soon).toContain('"kind":"rotated"');
    expect((await read(`${accounts}?later`)).status).toBe(200);
    expect(standIn.counts.byStatus[401]).toBeUndefined();
    product.process.kill('SIGTERM');
    expect(await product.ended).toBe(0);
  });

  it.concurrent('the process is up and not ready while the secret store gives no key, then ready', async ({
    expect,
    onTestFinished,
  }) => {
    const file = join(folder(onTestFinished), 'key');
    const settings = {
      UPSTREAM_API_KEY: '',
      UPSTREAM_API_KEY_FROM: `exec:cat ${file}`,
      UPSTREAM_API_KEY_REFRESH: never,
    };
    const pair = await startPair(settings, {}, onTestFinished);
    const { ask } = pair;
    expect((await ask('/livez')).status).toBe(200);
    expect((await ask('/readyz')).status).toBe(503);
    const early = await ask(accounts);
    expect(early.json()).toMatchObject({ status: 503, code: 'upstream-key-missing', retryAfter: 1 });
    await expect.poll(() => events(pair, 'waiting'), soon).toHaveLength(1);
    writeFileSync(`${file}.new`, standInKey);
    renameSync(`${file}.new`, file);
    await expect.poll(async () => (await ask('/readyz')).status).toBe(200);
    expect((await ask(accounts)).status).toBe(200);
    expect(events(pair, 'waiting')).toHaveLength(1);
  });

  it.concurrent('the process ends with status 1 when the secret store gives no key in half a minute', async ({
    expect,
    onTestFinished,
  }) => {
    const product = startProduct(['serve'], {
      atEnd: onTestFinished,
      settings: {
        UPSTREAM_BASE_URL: 'http://127.0.0.1:9/api',
        UPSTREAM_API_KEY_FROM: 'exec:false',
        PORT: '0',
        SHUTDOWN_GRACE: '1s',
      },
      // Half a minute passes in half a second.
      preload: `
        const { setTimeout: set } = globalThis;
        globalThis.setTimeout = (run, ms, ...more) => set(run, ms === 30_000 ? 500 : ms, ...more);`,
    });
    expect(await product.ended).toBe(1);
    expect(product.stdout()).toContain('"kind":"gave-up"');
    expect(product.stdout()).toContain('"msg":"stopped"');
  });

  it.concurrent('the process does not wait for a hanging key command when it is to end', async ({
    expect,
    onTestFinished,
  }) => {
    const product = startProduct(['serve'], {
      atEnd: onTestFinished,
      settings: {
        UPSTREAM_BASE_URL: 'http://127.0.0.1:9/api',
        UPSTREAM_API_KEY_FROM: 'exec:sleep 600',
        PORT: '0',
      },
    });
    await product.url();
    const startedMs = performance.now();
    product.process.kill('SIGTERM');
    expect(await product.ended).toBe(0);
    // The command's own limit is ten seconds.
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });
});
