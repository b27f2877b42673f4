/**
 * The units under a systemd that runs: as process 1 of a process namespace, with its own network, its own control group, and
 * what it writes in layers above the machine's folders, so that nothing of it stays. The steps are those of
 * `deploy/README.md`, run as they are written there.
 *
 *   unshare --net --mount node bench/prove/systemd.ts     (it takes root)
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { blocksOf, readDocument, root } from '../../test/support/documents.ts';
import { copyProgram, makeProgram } from '../../test/support/program.ts';
import { standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { applySteadyLoad } from '../../test/support/steady-load.ts';
import { makeGroup } from '../cgroup.ts';
import { accounts, expectNewNetwork, expectThat, run } from './subject.ts';
import { Suite } from './suite.ts';

const runAside = promisify(execFile);
const host = '127.0.0.1';
const units = '/run/units';
const console = '/run/console';
const log = '/run/log';
const checkout = '/run/checkout';
/** What systemd needs to start a unit, and nothing that would set up a machine. */
const targets = ['sysinit', 'basic', 'sockets', 'multi-user', 'network-online', 'shutdown', 'exit'];

/** Writes below a folder go into memory from now on, for this process and those that it starts. */
function layOver(folder: string): void {
  const [upper, work] = ['upper', 'work'].map((name) => join('/run/layers', folder, name)) as [
    string,
    string,
  ];
  for (const one of [upper, work]) mkdirSync(one, { recursive: true });
  run(
    'mount',
    '-t',
    'overlay',
    'overlay',
    '-o',
    `lowerdir=${folder},upperdir=${upper},workdir=${work}`,
    folder,
  );
}

function prepare(): void {
  run('mount', '-t', 'tmpfs', 'tmpfs', '/run');
  for (const folder of ['/etc', '/opt', '/tmp', '/var', '/usr/bin']) layOver(folder);
  run('mount', '-t', 'tmpfs', 'tmpfs', '/etc/systemd/system');
  if (!existsSync('/usr/bin/node')) writeFileSync('/usr/bin/node', '');
  run('mount', '--bind', process.execPath, '/usr/bin/node');
  for (const file of [console, log]) writeFileSync(file, '');
  run('mount', '--bind', console, '/dev/console');
  // There is no journal.
  mkdirSync('/etc/systemd/system/service.d');
  const output = `[Service]\nStandardOutput=append:${log}\nStandardError=append:${log}\n`;
  writeFileSync('/etc/systemd/system/service.d/log.conf', output);
  mkdirSync(units);
  for (const name of targets) cpSync(`/lib/systemd/system/${name}.target`, join(units, `${name}.target`));
  mkdirSync(checkout);
  copyProgram(checkout);
  for (const name of ['bin', 'README.md', 'deploy'])
    cpSync(join(root, name), join(checkout, name), { recursive: true });
}

/** The folder of control groups of version 2, which this systemd has to itself. */
const groups = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((path) =>
  existsSync(join(path, 'cgroup.procs')),
);

function removeGroups(folder: string): void {
  for (const one of readdirSync(folder, { withFileTypes: true }))
    if (one.isDirectory()) removeGroups(join(folder, one.name));
  rmdirSync(folder);
}

let systemd: ChildProcess | undefined;
let store: ChildProcess | undefined;

/** @returns its process id, as seen from here */
async function startSystemd(within: readonly string[]): Promise<string> {
  // A systemd in a container leaves it to what started it that its mounts are shared with its units.
  const inside =
    'mount --make-rshared / && umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"';
  const [program = '', ...words] = [
    ...within,
    ...['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', '--cgroup', '--uts', '--ipc'],
    ...[
      'sh',
      '-c',
      inside,
      'sh',
      '/lib/systemd/systemd',
      '--system',
      '--unit=basic.target',
      '--show-status=0',
    ],
  ];
  const environment = { container: 'prove', SYSTEMD_UNIT_PATH: `/etc/systemd/system:${units}` };
  systemd = spawn(program, [...words, '--log-target=console'], { env: { ...process.env, ...environment } });
  const { pid = 0 } = systemd;
  for (let tries = 0; tries < 100; tries++) {
    await sleep(100);
    if (existsSync('/run/systemd/private'))
      return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  }
  throw new Error(`systemd does not start: ${readFileSync(console, 'utf8').slice(-500)}`);
}

expectNewNetwork();
expectThat(groups !== undefined, 'this machine has no control groups of version 2');
makeProgram();
prepare();
const group = makeGroup(groups ?? '', 'gateway-systemd', {});
const standIn = await startStandIn();
const version = /^systemd \d+ \((.*?)\)/.exec(run('systemctl', '--version'))?.[1] ?? '?';
const suite = new Suite('systemd as process 1', version, 'journald, udev and what else a machine starts');
try {
  const pid = await startSystemd(group?.command ?? []);
  // Not one that waits for it: upstream and callers go on meanwhile.
  const sh = async (script: string): Promise<string> => {
    const words = ['-t', pid, '--pid', '--mount', '--cgroup', 'sh', '-ec', `cd ${checkout}; ${script}`];
    return (await runAside('nsenter', words)).stdout;
  };
  /** The block of the page that has this line. */
  const follow = (line: string): Promise<string> => {
    const block = blocksOf(readDocument('deploy/README.md')).find(({ text }) => text.includes(`${line}\n`));
    if (block === undefined) throw new Error(`deploy/README.md has no block with: ${line}`);
    return sh(block.text);
  };
  const state = async (): Promise<string> =>
    (await sh('systemctl is-active analytics-gateway || true')).trim();
  const answers = async (path: string, headers: Record<string, string> = {}): Promise<number> =>
    (await fetch(`http://${host}:8080${path}`, { headers })).status;
  const untilReady = async (): Promise<void> => {
    for (let tries = 0; tries < 600; tries++) {
      if ((await state()) === 'failed') break;
      if ((await answers('/readyz').catch(() => 0)) === 200) return;
      await sleep(100);
    }
    throw new Error(`not ready: ${readFileSync(log, 'utf8').slice(-1_000)}`);
  };
  writeFileSync(join(checkout, 'upstream-key'), standInKey);
  writeFileSync(join(checkout, 'callers.json'), '{ "callers": [] }');
  const settings = `UPSTREAM_BASE_URL=${standIn.url}\nUPSTREAM_API_KEY_CHECK=off\n`;
  writeFileSync(join(checkout, 'settings.env'), `${settings}HOST=${host}\n`);
  let headers: Record<string, string> = {};
  const restarts = 10;
  const restart = async (...names: readonly string[]): Promise<readonly string[]> => {
    const load = applySteadyLoad({ host, port: 8080, path: accounts, headers }, { fresh: 8, kept: 4 });
    for (let count = 0; count < restarts; count++) {
      const { answered } = load;
      while (load.answered < answered + 200) await sleep(20);
      await sh(`systemctl restart ${names[count % names.length]}`);
    }
    await load.stop();
    process.stdout.write(
      `${restarts} restarts of ${names}: ${load.answered} answered, ${load.failures.length} not\n`,
    );
    return load.failures;
  };

  await suite.try('the steps of the page start the gateway', async () => {
    await follow('systemctl daemon-reload && systemctl enable --now analytics-gateway');
    await untilReady();
  });
  await suite.try('a token that is made as the page says is known after the restart', async () => {
    const token = /wag_\S+/.exec(await follow('systemctl restart analytics-gateway'))?.[0];
    await untilReady();
    headers = { authorization: `Bearer ${token}` };
    expectThat((await answers(accounts, headers)) === 200, 'the token is not known');
  });
  await suite.try('the unit runs as a user of its own, and a reload keeps it running', async () => {
    const main = (await sh('systemctl show -P MainPID analytics-gateway')).trim();
    expectThat(!/^Uid:\s+0\b/m.test(await sh(`cat /proc/${main}/status`)), 'it runs as root');
    await sh('systemctl reload analytics-gateway');
    expectThat((await state()) === 'active', 'it ended');
  });
  await suite.try(
    'behind the socket of the page, ten restarts under load lose and refuse nothing',
    async () => {
      writeFileSync('/etc/analytics-gateway/settings.env', settings);
      await follow('systemctl enable --now analytics-gateway.socket && systemctl restart analytics-gateway');
      await untilReady();
      const failures = await restart('analytics-gateway');
      expectThat(failures.length === 0, `${failures.length}: ${[...new Set(failures)].join(', ')}`);
    },
  );
  await suite.try('wrong settings make the start fail at once, and none is tried again', async () => {
    await sh('echo CACHE_TTL=never >>/etc/analytics-gateway/settings.env');
    const said = await sh(
      'systemctl restart analytics-gateway 2>&1 || systemctl show -P NRestarts analytics-gateway',
    );
    expectThat(/failed/.test(said) && /^0$/m.test(said), said);
    await sh('sed -i /CACHE_TTL/d /etc/analytics-gateway/settings.env; systemctl start analytics-gateway');
  });
  await suite.try('a gateway that is killed is started again, and callers wait meanwhile', async () => {
    await sh('systemctl kill --signal=SIGKILL analytics-gateway');
    expectThat((await answers(accounts, headers)) === 200, 'a caller was refused');
  });
  await suite.try('two processes of the template go on while one after the other is restarted', async () => {
    await sh('systemctl disable --now analytics-gateway.socket analytics-gateway; groupadd --force valkey');
    await sh('install -d -g valkey /run/valkey');
    const words = [
      '--port',
      '0',
      '--unixsocket',
      '/run/valkey/valkey-server.sock',
      '--unixsocketperm',
      '777',
    ];
    store = spawn('redis-server', words, { cwd: '/run/valkey', stdio: 'ignore' });
    writeFileSync('/etc/analytics-gateway/settings.env', `${settings}HOST=${host}\n`);
    await follow('systemctl daemon-reload && systemctl enable --now analytics-gateway@1 analytics-gateway@2');
    await untilReady();
    const failures = await restart('analytics-gateway@1', 'analytics-gateway@2');
    const others = failures.filter((failure) => failure !== 'fresh ECONNRESET');
    expectThat(others.length === 0, `${others.length}: ${[...new Set(others)].join(', ')}`);
  });
} finally {
  systemd?.kill('SIGKILL');
  store?.kill();
  await standIn.close();
  await sleep(500);
  if (group !== undefined) removeGroups(group.folder);
}
suite.end();
process.exit();
