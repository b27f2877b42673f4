import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { version } from '../src/version.ts';
import { accounts, ask } from './support/gateway.ts';
import { findOldNode } from './support/old-node.ts';
import {
  type Owner,
  run,
  type Served,
  serve,
  settingsFor,
  standInFor,
  start,
  temporaryFolder,
  until,
} from './support/process.ts';
import { builtMain } from './support/program.ts';
import { end, holdSocket, listening, settingsOf } from './support/restarts.ts';
import { sharedOwner } from './support/shared-owner.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const executable = join(root, 'bin/analytics-gateway.js');
/** Makes the Node that runs the executable believe that it is an old one; not the Node that it starts. */
const asOldNode = [
  '--import',
  `data:text/javascript,if(process.argv[1].endsWith("analytics-gateway.js"))Object.defineProperty(process,"versions",{value:{...process.versions,node:"18.20.8"}})`,
];

/** A copy of the executable without the rest of the project. */
function alone(owner: Owner): string {
  const folder = temporaryFolder(owner);
  mkdirSync(join(folder, 'bin'));
  copyFileSync(executable, join(folder, 'bin/analytics-gateway.js'));
  copyFileSync(join(root, 'package.json'), join(folder, 'package.json'));
  return folder;
}

/** The processes that this one has started and that still run. */
function childrenOf(pid: number): string {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
}

/** The sockets that a process listens on, by their inodes. */
function listenersOf(pid: number): string[] {
  const listening = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .flatMap(([, , , state, , , , , , inode = '']) => (state === '0A' ? [`socket:[${inode}]`] : []));
  return readdirSync(`/proc/${pid}/fd`)
    .map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`, 'utf8'))
    .filter((target) => listening.includes(target));
}

// They share what they look at, so they run one after the other, and the last ends it.
describe('a gateway that the executable runs', () => {
  const owner = sharedOwner();
  let gateways: Record<'own' | 'old', Served>;
  beforeAll(async () => {
    const standIn = await standInFor(owner);
    const options = { main: executable, settings: settingsFor(standIn.url) };
    const own = await serve(owner, options);
    const old = await serve(owner, { ...options, flags: asOldNode });
    // Killed, it would leave behind the process that it has started.
    owner.onTestFinished(async () => {
      old.signal('SIGTERM');
      await old.exited;
    });
    gateways = { own, old };
  });

  it.runIf(process.platform === 'linux')(
    'the executable starts no second process where its Node is new enough',
    () => {
      expect(childrenOf(gateways.own.pid)).toBe('');
      expect(childrenOf(gateways.old.pid)).toMatch(/^\d+$/);
    },
  );

  it.runIf(process.platform === 'linux')(
    'no inspector is opened by SIGUSR1 in the executable under an old Node, whose environment holds the key',
    async () => {
      const { old: gateway } = gateways;
      const before = listenersOf(gateway.pid);
      gateway.signal('SIGUSR1');
      gateway.signal('SIGHUP');
      // Both have been handled once the second one was passed on.
      await gateway.printed(/SIGHUP/);
      expect(listenersOf(gateway.pid)).toEqual(before);
      expect(gateway.stderr()).not.toContain('Debugger');
    },
  );

  it.for([
    ['its own Node', 'own'],
    ['an old Node', 'old'],
  ] as const)(
    'the executable answers, reads the key again on SIGHUP and drains on SIGTERM, under %s',
    async ([, which]) => {
      const gateway = gateways[which];
      expect((await gateway.ask(accounts)).status).toBe(200);
      const before = gateway.stdout().split('SIGHUP').length;
      gateway.signal('SIGHUP');
      await until(() => gateway.stdout().split('SIGHUP').length > before);
      gateway.signal('SIGTERM');
      expect(await gateway.exited).toBe(0);
      expect(gateway.stderr()).toBe('');
      expect(gateway.lines().at(-1)).toMatchObject({ msg: 'stopped' });
    },
  );
});

describe.concurrent('the executable', () => {
  it('the executable under an old Node refuses the flags of that Node that could show the key', async (owner) => {
    const flags = [...asOldNode, '--heapsnapshot-signal=SIGUSR2'];
    const settings = settingsFor('http://127.0.0.1:9/api');
    const { status, stderr } = await run(owner, ['serve'], { main: executable, flags, settings });
    expect(stderr).toContain('--heapsnapshot-signal: not with a secret in memory');
    expect(status).toBe(2);
  });

  it('the executable drains on SIGINT under an old Node, and ends at once on a second one', async (owner) => {
    const standIn = await standInFor(owner);
    standIn.behave({ until: new Promise(() => {}) });
    const gateway = start(owner, ['serve'], {
      main: executable,
      flags: asOldNode,
      settings: settingsFor(standIn.url),
    });
    const [, port] = await gateway.printed(/"url":"http:[^"]*:(\d+)"/);
    const unanswered = ask({ host: '127.0.0.1', port: Number(port) }, accounts, {}).catch(() => undefined);
    await until(() => standIn.requests.length > 0);
    gateway.signal('SIGINT');
    await until(() => gateway.stdout().includes('"msg":"stopping"'));
    gateway.signal('SIGINT');
    expect(await gateway.exited).toBe(130);
    await unanswered;
  });

  it('the executable passes arguments on, and the exit status back, under an old Node', async (owner) => {
    const options = { main: executable, flags: asOldNode };
    expect(await run(owner, ['--version'], options)).toEqual({
      status: 0,
      stdout: `${version}\n`,
      stderr: '',
    });
    expect((await run(owner, ['check'], options)).status).toBe(2);
  });

  it('the executable reports the death of the gateway by a signal as a shell does', async (owner) => {
    const folder = alone(owner);
    mkdirSync(join(folder, 'node_modules/node/bin'), { recursive: true });
    writeFileSync(join(folder, 'node_modules/node/package.json'), '{}');
    writeFileSync(join(folder, 'node_modules/node/bin/node'), '#!/bin/sh\nkill -KILL $$\n', { mode: 0o755 });
    mkdirSync(join(folder, 'dist'));
    writeFileSync(join(folder, 'dist/main.js'), '');
    const ended = await run(owner, [], { main: join(folder, 'bin/analytics-gateway.js'), flags: asOldNode });
    expect(ended.status).toBe(128 + 9);
  });

  it('the executable runs what is built rather than the source, and says what is missing', async (owner) => {
    const folder = alone(owner);
    const main = join(folder, 'bin/analytics-gateway.js');
    const unbuilt = await run(owner, [], { main });
    expect(unbuilt).toMatchObject({ status: 2, stderr: expect.stringContaining('npm run build') });

    for (const [file, said] of [
      ['src/main.ts', 'source'],
      ['dist/main.js', 'built'],
    ] as const) {
      mkdirSync(join(folder, file, '..'));
      writeFileSync(join(folder, file), `console.log('${said}')`);
      expect((await run(owner, [], { main })).stdout).toBe(`${said}\n`);
    }

    const old = await run(owner, [], { main, flags: asOldNode });
    expect(old.status).toBe(2);
    expect(old.stderr).toMatch(
      /Node 22\.19 or later is needed, and \S+ is 18\.20\.8\. In a checkout "npm ci"/,
    );
  });
});

describe('the program under an old Node, without the executable that finds a newer one', () => {
  const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    engines: { node: string };
  };
  const least = engines.node.replace('>=', '');
  const asNode = (version: string): string[] => [
    '--import',
    `data:text/javascript,Object.defineProperty(process,"versions",{value:{...process.versions,node:"${version}"}})`,
  ];

  it.for([
    ['20.20.2', 2],
    ['22.18.9', 2],
    [`${least}.0`, 0],
    ['24.0.0', 0],
  ] as const)(
    'the program under Node %s ends with %i, in a sentence where it is too old',
    async ([node, expected], owner) => {
      const { status, stdout, stderr } = await run(owner, ['--version'], { flags: asNode(node) });
      expect(status).toBe(expected);
      const sentence = `analytics-gateway: Node ${least} or later is needed, and ${process.execPath} is ${node}. Install`;
      if (expected === 0) expect([stdout, stderr]).toEqual([`${version}\n`, '']);
      else
        expect([stdout, stderr.slice(0, sentence.length), stderr.split('\n').length]).toEqual([
          '',
          sentence,
          2,
        ]);
    },
  );

  const oldNode = findOldNode();
  it.skipIf(oldNode === undefined)('the program says so under an old Node of this machine', () => {
    const { status, stdout, stderr } = spawnSync(oldNode ?? '', [builtMain, 'serve'], { encoding: 'utf8' });
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^analytics-gateway: Node \S+ or later is needed, and \S+ is \S+\. Install .*\n$/);
  });
});

it('the executable passes on the sockets that it was started with', async (owner) => {
  const { fd, port } = holdSocket(owner);
  const settings = await settingsOf(owner, { HOST: 'fd:3', LISTEN_FDS: '1' });
  const under = ['sh', '-c', 'LISTEN_PID=$$ exec "$@"', 'sh'];
  const gateway = start(owner, ['serve'], {
    main: executable,
    flags: asOldNode,
    settings,
    under,
    passed: fd,
  });
  // Killed, it would leave behind the process that it has started.
  owner.onTestFinished(() => end(gateway));
  expect(await listening(gateway)).toBe(`http://127.0.0.1:${port}`);
});
