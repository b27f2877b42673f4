import { describe, expect, it, vi } from 'vitest';
import { type FleetMember, startFleet, usesStore } from '../support/fleet.ts';
import { accounts } from '../support/gateway.ts';
import { redisProgram } from '../support/redis.ts';
import { startCluster, startSentinels } from '../support/redis-sets.ts';

const patiently = { timeout: 60_000 };
/** Every request goes up by itself, and none comes back after a 429. */
const each = { CACHE_TTL: '0s', RETRY_LIMIT: '0', REQUEST_TIMEOUT: '5s' };
const limited = { status: 429, headers: { 'retry-after': '30' } };

let reads = 0;
const ask = async (member: FleetMember): Promise<number> => {
  reads += 1;
  return (await member.ask(`${accounts}?read=${reads}`)).status;
};
const gateOf = async (member: FleetMember) =>
  (await member.askAdmin('/status')).json()['gate'] as { state: string; statedWaitSeconds: number };
const roleOf = async (member: FleetMember) => (await member.sharedStore()).gate.role;
const rolesOf = async (members: readonly FleetMember[]) =>
  (await Promise.all(members.map(roleOf))).toSorted();

/** One gateway is told to wait, and all know of it. */
async function closeAll(members: readonly FleetMember[], behave: (on: boolean) => void): Promise<void> {
  behave(true);
  expect(await ask(members[0] as FleetMember)).toBe(429);
  behave(false);
  await vi.waitFor(async () => {
    for (const member of members) expect((await gateOf(member)).state).toBe('closed');
  }, patiently);
}

describe.skipIf(redisProgram === undefined)('the gate of gateways that share a store', () => {
  it('the gate of gateways that share a store closes at all of them when one is answered with 429, and gives its turns at one', async () => {
    const { members, standIn } = await startFleet(3, each);
    await closeAll(members, (on) => standIn.behave(on ? limited : undefined));
    expect(standIn.requests).toHaveLength(1);
    for (const member of members) {
      expect((await gateOf(member)).statedWaitSeconds).toBeGreaterThan(10);
      expect(await ask(member)).toBe(429);
    }
    expect(standIn.requests).toHaveLength(1);
    await vi.waitFor(
      async () => expect(await rolesOf(members)).toEqual(['follows', 'follows', 'leads']),
      patiently,
    );
    const metrics = await Promise.all(
      members.map(async (member) => (await member.askAdmin('/metrics')).body.toString()),
    );
    expect(metrics.filter((text) => text.includes('\nanalytics_gateway_shared_gate_leads 1\n'))).toHaveLength(
      1,
    );
  });

  it('the gate of gateways that share a store is closed at a gateway that comes later, and stays so when the one that gave the turns ends', async () => {
    const { members, standIn, add } = await startFleet(2, each);
    await closeAll(members, (on) => standIn.behave(on ? limited : undefined));
    const late = await add();
    await vi.waitFor(async () => expect((await gateOf(late)).state).toBe('closed'), patiently);
    expect(await ask(late)).toBe(429);
    const roles = await Promise.all(members.map(roleOf));
    const leader = members[roles.indexOf('leads')] as FleetMember;
    await leader.gateway.drain();
    const left = members.filter((member) => member !== leader);
    await vi.waitFor(async () => expect(await rolesOf(left)).toEqual(['follows', 'leads']), patiently);
    for (const member of left) expect(await ask(member)).toBe(429);
    expect(standIn.requests).toHaveLength(1);
  });

  it('the gate of gateways that share a store serves all that wait at any of them, one by one, and tells the turns it gave', async () => {
    const limit = { perSecond: 50, burst: 10 };
    const settings = { ...each, RETRY_LIMIT: '4', REQUEST_TIMEOUT: '60s' };
    const { members, standIn } = await startFleet(3, settings, { limit });
    // However slowly they come, they have to wait.
    standIn.behave({ status: 429, headers: { 'retry-after': '1' } }, 10);
    const came = await Promise.all(
      Array.from({ length: 60 }, (_, index) => ask(members[index % 3] as FleetMember)),
    );
    expect(new Set(came)).toEqual(new Set([200]));
    expect(standIn.counts.byStatus['200']).toBe(60);
    // On a slow machine a leader is silent for half a second, another one leads, and turns are counted anew.
    await vi.waitFor(async () => {
      for (const member of members) expect(await ask(member)).toBe(200);
      const gates = await Promise.all(members.map(async (member) => (await member.sharedStore()).gate));
      const sum = (of: (gate: (typeof gates)[number]) => number) =>
        gates.reduce((all, one) => all + of(one), 0);
      expect(sum(({ turnsTaken }) => turnsTaken)).toBeGreaterThan(0);
      expect(sum(({ turnsGiven }) => turnsGiven)).toBeGreaterThanOrEqual(sum(({ turnsTaken }) => turnsTaken));
    }, patiently);
  }, 90_000);

  it('the gate of gateways that share a store tells other gateways nothing that can be read, and believes nothing that a stranger says', async () => {
    const { members, standIn, redis } = await startFleet(2, each);
    await redis.command('PUBLISH', 'analytics-gateway:gate:all', '{"kind":"word","term":9e12}');
    await closeAll(members, (on) => standIn.behave(on ? limited : undefined));
    const names = (await redis.command('KEYS', '*:gate:*')).split('\n');
    expect(names).toHaveLength(2);
    const record = names.find((name) => name.includes(':known:')) ?? '';
    expect(await redis.command('STRLEN', record)).not.toBe('0');
    expect(await redis.command('GET', record)).not.toContain('perMs');
    await redis.command('SET', record, '{"state":"open"}');
    const lease = names.find((name) => name.includes(':lease:')) ?? '';
    await redis.command('SET', lease, 'a stranger');
    for (const member of members) expect(await ask(member)).toBe(429);
    await vi.waitFor(async () => expect(await redis.command('GET', lease)).not.toBe('a stranger'), patiently);
    await vi.waitFor(async () => expect(await rolesOf(members)).toEqual(['follows', 'leads']), patiently);
    expect(standIn.requests).toHaveLength(1);
  });

  it('the shared gate of gateways with another key is another gate', async () => {
    const { members, standIn, add } = await startFleet(1, each);
    const [first] = members as [FleetMember];
    standIn.keys.add('another-key-of-this-team');
    const other = await add({ UPSTREAM_API_KEY: 'another-key-of-this-team' });
    await closeAll([first], (on) => standIn.behave(on ? limited : undefined));
    expect(await roleOf(first)).toBe('leads');
    expect(await ask(other)).toBe(200);
    expect(await roleOf(other)).toBe('alone');
  });
});

describe.skipIf(redisProgram === undefined)('a told limit of gateways that share a store', () => {
  it('a told limit of gateways that share a store is kept by all together, and by one that is started after them', async () => {
    const { members, standIn, add } = await startFleet(2, {
      ...each,
      REQUEST_TIMEOUT: '60s',
      UPSTREAM_LIMIT: '3/1h',
    });
    const [first, second] = members as [FleetMember, FleetMember];
    await vi.waitFor(async () => expect(await rolesOf(members)).toEqual(['follows', 'leads']), patiently);
    for (const member of [first, second, first]) {
      await vi.waitFor(async () => expect(await ask(member)).toBe(200), patiently);
    }
    expect([await ask(first), await ask(second)]).toEqual([429, 429]);
    await Promise.all(members.map(({ gateway }) => gateway.drain()));
    const heir = await add();
    await vi.waitFor(async () => expect(await roleOf(heir)).toBe('leads'), patiently);
    expect(await ask(heir)).toBe(429);
    expect(standIn.requests.map(({ status }) => status)).toEqual(Array(3).fill(200));
  }, 60_000);
});

describe.skipIf(redisProgram === undefined)('the gate of a gateway whose shared store goes away', () => {
  it.each<[string, 'kill' | 'freeze', 'start' | 'thaw']>([
    ['is killed', 'kill', 'start'],
    ['stands still', 'freeze', 'thaw'],
  ])(
    'a gate whose shared store goes away and %s keeps what was stated, and is one with the others again when it returns',
    async (_, end, begin) => {
      const { members, standIn, redis } = await startFleet(2, each, {}, 50);
      await closeAll(members, (on) => standIn.behave(on ? limited : undefined));
      await redis[end]();
      for (const member of members) {
        expect(await ask(member)).toBe(429);
        await usesStore(member, false);
        expect(await roleOf(member)).toBe('alone');
        expect((await gateOf(member)).state).toBe('closed');
      }
      await redis[begin]();
      await Promise.all(members.map((member) => usesStore(member)));
      await vi.waitFor(async () => expect(await rolesOf(members)).toEqual(['follows', 'leads']), patiently);
      expect(standIn.requests).toHaveLength(1);
    },
  );
});

describe.skipIf(redisProgram === undefined)('gateways whose shared store goes to another server', () => {
  it.each([
    ['the master behind sentinels dies', startSentinels],
    ['a node of a cluster is lost', () => startCluster({ replicas: true })],
  ] as const)(
    'gateways whose shared store goes to another server answer 200 and 429 alone while %s, and share turns and limits again',
    async (_, start) => {
      await using set = await start();
      const settings = { ...each, SHARED_STORE: set.address, UPSTREAM_LIMIT: '40/1s' };
      const { members } = await startFleet(2, settings, {}, 1_000);
      await vi.waitFor(async () => expect(await rolesOf(members)).toEqual(['follows', 'leads']), patiently);
      const nodesOf = async (): Promise<readonly string[]> =>
        (await (members[0] as FleetMember).sharedStore()).nodes;
      const before = await nodesOf();
      const lost = set.nodes.find(({ port }) => before.includes(`127.0.0.1:${port}`));
      const statuses: number[] = [];
      let isOver = false;
      const asking = members.map(async (member) => {
        while (!isOver) statuses.push(await ask(member));
      });
      await lost?.kill();
      await vi.waitFor(async () => {
        expect(await nodesOf()).not.toContain(`127.0.0.1:${lost?.port}`);
        expect(await rolesOf(members)).toEqual(['follows', 'leads']);
      }, patiently);
      isOver = true;
      await Promise.all(asking);
      expect(statuses.filter((status) => status !== 200 && status !== 429)).toEqual([]);
      expect(statuses).toContain(200);
    },
    90_000,
  );
});
