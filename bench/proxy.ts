/**
 * What a read costs on its way out through Squid and through tinyproxy, beside one that goes by itself: the built gateway
 * before a stand-in with TLS, one request after another, each with a query of its own. Ends with 1 where connections are
 * not kept, or Squid's way costs more.
 *
 *   npm run bench:proxy [-- --rounds 5] [--seconds 3]
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { makeCertificate } from '../test/support/certificate.ts';
import { standInFor, temporaryFolder } from '../test/support/process.ts';
import { realProxies, startRealProxy } from '../test/support/proxy.ts';
import { root, startGateway } from './contenders.ts';
import { measuredCore } from './cores.ts';
import { own } from './owner.ts';
import { alternate, ratio } from './rounds.ts';

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '5' }, seconds: { type: 'string', default: '3' } },
});
const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
if (!(rounds >= 1 && seconds >= 1)) throw new TypeError('npm run bench:proxy [-- --rounds N] [--seconds N]');

/** Of the CPU time of a read without a proxy, on a quiet machine: others' work between two reads costs the caches. */
const mostCpu = 1.25;
/** To the gateway and to tinyproxy another machine's address, though it leads here. */
const host = '0.0.0.0';

function write(text: string): void {
  process.stdout.write(`${text}\n`);
}

execFileSync('npm', ['run', '--silent', 'build'], { stdio: 'inherit', cwd: root });
const missed: string[] = [];
await own(async (owner) => {
  const folder = temporaryFolder(owner);
  const around = { folder, upstreamOrigin: '', upstreamUrl: '', bytes: 0, core: measuredCore };
  const tls = makeCertificate({ addresses: ['127.0.0.1', host] });
  const authorities = join(folder, 'authorities.pem');
  writeFileSync(authorities, tls.cert);

  /** A gateway with an upstream of its own, whose connections are counted. */
  const start = async (name: 'none' | (typeof realProxies)[number]) => {
    const standIn = await standInFor(owner, { tls, accounts: 15, recordRequests: false });
    const url = `https://${host}:${new URL(standIn.url).port}/api`;
    const proxy = name === 'none' ? undefined : await startRealProxy(owner, name);
    const contender = await startGateway(
      { ...around, upstreamUrl: url },
      {
        name,
        settings: {
          CACHE_TTL: '0s',
          NODE_EXTRA_CA_CERTS: authorities,
          ...(proxy && { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}` }),
        },
      },
    );
    owner.onTestFinished(() => contender.program.end());
    return { contender, counts: standIn.counts };
  };
  const started = [await start('none')];
  for (const name of realProxies) started.push(await start(name));
  const contenders = started.map(({ contender }) => contender);
  const options = { rounds, seconds, warmUpSeconds: 3, connections: 1, reads: 'new' as const };
  // The end of a load may abandon a read, and its connection with it.
  const mostConnections = 1 + rounds + 1;
  const measured = await alternate(contenders, around, options);

  write('| proxy | CPU | in all | connections and handshakes for the reads |');
  write('|---|---|---|---|');
  for (const [at, { name, cpuUsPerRequest, p50Ms, cpuByRound }] of measured.entries()) {
    const { connections = 0, total = 0 } = started[at]?.counts ?? {};
    write(
      `| ${name} | ${cpuUsPerRequest.toFixed(0)} µs | ${p50Ms.toFixed(2)} ms | ${connections} for ${total} |`,
    );
    const cpu = ratio(cpuByRound, measured[0]?.cpuByRound ?? []);
    if (connections > mostConnections) missed.push(`${name}: ${connections} connections for ${total} reads`);
    if (name === 'squid' && cpu > mostCpu)
      missed.push(`a read through ${name} takes ${cpu.toFixed(2)} × the CPU time, not ${mostCpu} ×`);
  }
});
for (const promise of missed) write(`MISSED: ${promise}`);
process.exitCode = missed.length === 0 ? 0 : 1;
