/**
 * A bad network between callers, gateway and upstream: packets of TCP are lost, and connections stay that have no other end
 * any more, by iptables in a network of its own; and late and out of order where the kernel has netem.
 *
 *   unshare --net node bench/prove/network.ts     (it takes root)
 */
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeProgram } from '../../test/support/program.ts';
import { expectAll, expectNewNetwork, expectThat, run, type Subject, startSubject } from './subject.ts';
import { Suite } from './suite.ts';

// The machine's own rules are never touched.
expectNewNetwork();
makeProgram();

const version = /v(\S+)/.exec(run('iptables', '--version'))?.[1] ?? '?';
const leftOut = 'netem (late, out of order) where the kernel has none; the shared store';
const suite = new Suite('iptables, lost packets and half-open connections', version, leftOut);
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

suite.end();

const netem = [
  'qdisc',
  'add',
  'dev',
  'lo',
  'root',
  'netem',
  'delay',
  '30ms',
  '20ms',
  'reorder',
  '25%',
  '50%',
];
const late = new Suite('tc netem, late and out of order', /-(\S+)/.exec(run('tc', '-V'))?.[1] ?? '?');
if (spawnSync('tc', netem).status === 0) {
  await late.try('each read is answered', async () => {
    const subject = await startSubject({ settings: patient });
    expectAll(await subject.ask(200, { atOnce: 16 }), 200);
    await subject.stop();
  });
  late.end();
} else process.stdout.write('left out: netem, which this kernel does not have\n');
