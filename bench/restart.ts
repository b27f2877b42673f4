/**
 * Ten restarts of the built gateway under load, behind a socket that is held for it (`HOST=fd:3`) and beside its successor
 * (`REUSE_PORT=on`): how many requests were lost, and how many met no listener or one that closed. Ends with 1 where a
 * promise is missed.
 *
 *   npm run bench:restart [-- --restarts 10] [--requests 4000]
 *
 * `tcp_migrate_req` belongs to a network. In one of its own, as root, with the machine's left alone:
 *
 *   unshare --net sh -c 'ip link set lo up; echo 1 >/proc/sys/net/ipv4/tcp_migrate_req; npm run bench:restart'
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { imageFlags } from '../test/support/image-flags.ts';
import { makeProgram } from '../test/support/program.ts';
import { restartUnderLoad, waysToRestart } from '../test/support/restarts.ts';
import { own } from './owner.ts';

const { values } = parseArgs({
  options: { restarts: { type: 'string', default: '10' }, requests: { type: 'string', default: '4000' } },
});
const restarts = Number(values.restarts);
const requestsEach = Number(values.requests);
if (!(restarts >= 1 && requestsEach >= 1))
  throw new TypeError('npm run bench:restart [-- --restarts N] [--requests N]');

/** Of requests that meet the queue of a listener at the moment when it closes. */
const mostReset = 1 / 2_000;

/** Whether another process gets what waits in the queue of a listener that closes (Linux 5.14). */
function migrates(): boolean {
  try {
    return readFileSync('/proc/sys/net/ipv4/tcp_migrate_req', 'utf8').trim() === '1';
  } catch {
    return false;
  }
}

function write(text: string): void {
  process.stdout.write(`${text}\n`);
}

makeProgram();
write(
  `${restarts} restarts, 12 connections that ask without a pause; tcp_migrate_req is ${Number(migrates())}\n`,
);
write('| | requests | lost | refused | reset in the queue |');
write('|---|---|---|---|---|');
const missed: string[] = [];
for (const way of waysToRestart) {
  await own(async (owner) => {
    const flags = imageFlags();
    const { answered, failures } = await restartUnderLoad(owner, way, { restarts, requestsEach, flags });
    const count = (what: string): number => failures.filter((failure) => failure === what).length;
    const [refused, reset] = [count('fresh ECONNREFUSED'), count('fresh ECONNRESET')];
    const lost = failures.length - refused - reset;
    const requests = answered + failures.length;
    write(`| ${way} | ${requests} | ${lost} | ${refused} | ${reset} |`);
    if (lost + refused > 0) missed.push(`${way}: ${[...new Set(failures)].join(', ')}`);
    const most = way === 'REUSE_PORT=on' && !migrates() ? mostReset * requests : 0;
    if (reset > most)
      missed.push(`${way}: ${reset} of ${requests} were reset, more than ${Math.floor(most)}`);
  });
}
for (const promise of missed) write(`MISSED: ${promise}`);
process.exitCode = missed.length === 0 ? 0 : 1;
