/** Little of everything: 64 descriptors, 128 MiB, one processor; and callers who are slow on purpose (slowhttptest). */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeProgram } from '../../test/support/program.ts';
import { makeMemoryGroup } from '../cgroup.ts';
import { expectAll, expectThat, type Got, startSubject } from './subject.ts';
import { packageVersion, Suite } from './suite.ts';

const kernel = readFileSync('/proc/sys/kernel/osrelease', 'utf8').trim().split('-')[0] ?? '?';

/** Those who are refused a connection get none, and the log has a line for each (`MAX_CONNECTIONS`). */
function refusedOf(all: readonly Got[]): number {
  return all.filter((one) => typeof one === 'string' && /ECONNRESET|hang up/.test(one)).length;
}

async function tryDescriptors(): Promise<void> {
  const suite = new Suite('ulimit -n', kernel);
  for (const [limit, atOnce] of [
    [64, 12],
    [64, 60],
    [40, 30],
  ] as const) {
    await suite.try(
      `with ${limit} descriptors and ${atOnce} callers each is answered, or in the log`,
      async () => {
        const subject = await startSubject({ within: ['sh', '-c', `ulimit -n ${limit}; exec "$@"`, 'sh'] });
        subject.standIn.behave({ latencyMs: 200 });
        const got = await subject.ask(200, { atOnce });
        const refused = refusedOf(got);
        expectAll(
          got.filter((one) => typeof one === 'number'),
          200,
        );
        const lines = subject.lines.filter((line) => line.includes('"MAX_CONNECTIONS"')).length;
        expectThat(refused <= lines, `${refused} callers were refused, ${lines} lines say so`);
        expectThat(refused === 0 || atOnce > limit / 4, `${refused} of ${atOnce} at once were refused`);
        subject.standIn.behave(undefined);
        expectAll(await subject.ask(10), 200);
        await subject.stop();
      },
    );
  }
  suite.end();
}

async function tryMemory(): Promise<void> {
  for (const mib of [128, 256]) {
    const group = makeMemoryGroup(`gateway-prove-${mib}`, mib * 2 ** 20);
    if (group === undefined) throw new Error('a control group takes root');
    const suite = new Suite(`a control group of ${mib} MiB`, kernel);
    await suite.try('reads, then answers of 4 MiB, twelve at once', async () => {
      const subject = await startSubject({ within: group.command });
      expectAll(await subject.ask(1_000, { atOnce: 16 }), 200);
      subject.standIn.behave({ body: { bytes: 4 * 2 ** 20 } });
      expectAll(await subject.ask(60, { atOnce: 12 }), 200, 502, 503);
      subject.standIn.behave(undefined);
      expectAll(await subject.ask(20), 200);
      process.stdout.write(`${mib} MiB: held at most ${(group.peakBytes() / 2 ** 20).toFixed(0)} MiB\n`);
      await subject.stop();
    });
    group.remove();
    suite.end();
  }
}

async function tryOneProcessor(): Promise<void> {
  const suite = new Suite('taskset -c 0', kernel);
  await suite.try('every read is answered, and what is under way when it stops', async () => {
    const subject = await startSubject({ within: ['taskset', '-c', '0'] });
    expectAll(await subject.ask(2_000, { atOnce: 32 }), 200);
    subject.standIn.behave({ latencyMs: 300 });
    const late = subject.ask(20, { atOnce: 20 });
    await sleep(150);
    const stopped = subject.stop();
    expectAll(await late, 200);
    await stopped;
  });
  suite.end();
}

/** The options of slowhttptest(1), and what each does. */
const slow = {
  'heads that do not end (slowloris)': ['-H', '-i', '1'],
  'bodies that do not end (R.U.D.Y.)': ['-B', '-i', '1'],
  'overlapping ranges (Apache killer)': ['-R'],
  'replies read slowly': ['-X', '-w', '1', '-y', '16', '-n', '1', '-z', '8', '-k', '3'],
};

async function trySlowCallers(): Promise<void> {
  const suite = new Suite('slowhttptest', packageVersion('slowhttptest'));
  for (const [name, options] of Object.entries(slow)) {
    await suite.try(`others are answered beside 500 connections: ${name}`, async () => {
      const subject = await startSubject({ settings: { MAX_CONNECTIONS: '300', HEADERS_TIMEOUT: '5s' } });
      const url = `http://127.0.0.1:${subject.gateway.port}/api/analytics/accounts/`;
      const stranger = spawn(
        'slowhttptest',
        [...options, ...['-c', '500', '-r', '100', '-l', '12', '-u', url]],
        {
          stdio: 'ignore',
        },
      );
      const gone = new Promise((resolve) => stranger.once('exit', resolve));
      await sleep(5_500);
      // From another address than the stranger's.
      const got = await subject.ask(100, { localAddress: '127.0.0.2' });
      expectAll(got, 200);
      await gone;
      expectAll(await subject.ask(10), 200);
      await subject.stop();
    });
  }
  suite.end();
}

makeProgram();
await tryDescriptors();
await tryMemory();
await tryOneProcessor();
await trySlowCallers();
// A case that failed leaves its gateways.
process.exit();
