/**
 * A bad network between callers, gateways, upstream and store: packets of TCP are lost, and connections stay that have no
 * other end any more, by iptables in a network of its own; packets come late, out of order and twice, by late.py.
 *
 *   unshare --net node bench/prove/network.ts     (it takes root)
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeProgram } from '../../test/support/program.ts';
import { startRedis } from '../../test/support/redis.ts';
import { freePort, startProgram } from '../process.ts';
import { startPair } from './pair.ts';
import { expectAll, expectNewNetwork, expectThat, run, type Subject, startSubject } from './subject.ts';
import { Suite } from './suite.ts';

// The machine's own rules are never touched.
expectNewNetwork();
makeProgram();

const version = /v(\S+)/.exec(run('iptables', '--version'))?.[1] ?? '?';
const suite = new Suite('iptables, lost packets and half-open connections', version);
const storePort = await freePort();
const lossy = ['-m', 'statistic', '--mode', 'random', '--probability', '0.1'];

/** Drops packets from and to a port while `during` runs. */
async function dropping(port: number, which: readonly string[], during: () => Promise<void>): Promise<void> {
  const rules = ['--dport', '--sport'].map((side) => [
    ...['INPUT', '-p', 'tcp', side, String(port)],
    ...which,
    ...['-j', 'DROP'],
  ]);
  for (const rule of rules) run('iptables', '-A', ...rule);
  try {
    await during();
  } finally {
    for (const rule of rules) run('iptables', '-D', ...rule);
  }
}

const upstreamPort = ({ standIn }: Subject): number => Number(new URL(standIn.url).port);

async function untilAnswered(subject: Subject): Promise<void> {
  for (let tries = 0; tries < 80 && (await subject.ask(1))[0] !== 200; tries++) await sleep(250);
  expectAll(await subject.ask(10), 200);
}

const patient = { UPSTREAM_TIMEOUT: '3s', REQUEST_TIMEOUT: '10s', SHUTDOWN_GRACE: '12s' };

await suite.try('a tenth of all packets between gateway and upstream is lost', async () => {
  const subject = await startSubject({ settings: patient });
  await dropping(upstreamPort(subject), lossy, async () => {
    const got = await subject.ask(300, { atOnce: 16 });
    expectAll(got, 200, 502, 503, 504);
    expectThat(got.filter((one) => one === 200).length > 200, 'most reads fail');
  });
  await untilAnswered(subject);
  await subject.stop();
});

await suite.try('a tenth of all packets between callers and gateway is lost', async () => {
  const subject = await startSubject({ settings: patient });
  await dropping(subject.gateway.port, lossy, async () => {
    expectAll(await subject.ask(200, { atOnce: 16 }), 200);
  });
  await subject.stop();
});

await suite.try(
  'the upstream falls silent, kept connections with it (half-open), and comes back',
  async () => {
    const subject = await startSubject({ settings: patient });
    expectAll(await subject.ask(20, { atOnce: 8 }), 200);
    await dropping(upstreamPort(subject), [], async () => {
      expectAll(await subject.ask(8, { atOnce: 8 }), 502, 503, 504);
    });
    await untilAnswered(subject);
    await subject.stop();
  },
);

await suite.try('it stops in time with 0 while the upstream is silent and reads are under way', async () => {
  const subject = await startSubject({ settings: { ...patient, SHUTDOWN_GRACE: '4s' } });
  expectAll(await subject.ask(5), 200);
  await dropping(upstreamPort(subject), [], async () => {
    const asked = subject.ask(8, { atOnce: 8 });
    await sleep(500);
    const startMs = performance.now();
    const stopped = subject.stop();
    expectAll(await asked, 502, 503, 504);
    await stopped;
    expectThat(performance.now() - startMs < 6_000, 'it takes longer than SHUTDOWN_GRACE');
  });
});

const store = await startRedis('--port', String(storePort), '--bind', '127.0.0.1', '--protected-mode', 'no');
const storeAddress = `redis://127.0.0.1:${storePort}`;

await suite.try('a tenth of all packets between two gateways and their store is lost', async () => {
  const pair = await startPair(storeAddress, { settings: patient });
  await pair.untilShared();
  await dropping(storePort, lossy, async () => {
    for (const { ask } of [pair.one, pair.two]) expectAll(await ask(150, { atOnce: 8 }), 200);
  });
  await pair.untilShared();
  await pair.stop();
});

await suite.try(
  'the store falls silent, its connections with it, and is used again when it is back',
  async () => {
    const pair = await startPair(storeAddress, { settings: patient });
    await pair.untilShared();
    await dropping(storePort, [], async () => {
      for (const { ask, untilLine } of [pair.one, pair.two]) {
        expectAll(await ask(50, { atOnce: 8 }), 200);
        await untilLine(/the shared store is away/);
        expectAll(await ask(50, { atOnce: 8 }), 200);
      }
    });
    await pair.untilShared();
    await pair.stop();
  },
);
suite.end();

const line = await startProgram({
  command: 'python3',
  args: [join(import.meta.dirname, 'late.py')],
  speaks: true,
});
const far = (address: string): string => address.replace('127.0.0.1', '10.9.0.2');
const late = new Suite(
  'late.py: packets late, out of order, twice',
  readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim().split('-')[0] ?? '?',
  'netem itself, which this kernel has not',
);

await late.try('between gateway and upstream', async () => {
  const subject = await startSubject({
    settings: { ...patient, UPSTREAM_ALLOW_HTTP: 'true' },
    upstreamUrl: far,
  });
  expectAll(await subject.ask(300, { atOnce: 16 }), 200);
  subject.standIn.behave({ body: { bytes: 300_000 } });
  expectAll(await subject.ask(30, { atOnce: 8 }), 200);
  await subject.stop();
});
await late.try('between two gateways and their store', async () => {
  const pair = await startPair(far(storeAddress), { settings: patient });
  await pair.untilShared();
  for (const { ask } of [pair.one, pair.two]) expectAll(await ask(300, { atOnce: 8 }), 200);
  await pair.untilShared();
  await pair.stop();
});
late.end();
await line.end();
await store[Symbol.asyncDispose]();
// A case that failed leaves its gateways.
process.exit();
