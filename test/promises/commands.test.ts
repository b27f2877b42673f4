import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { describedSettings as table } from '../../src/config/settings.ts';
import { version } from '../../src/version.ts';
import { checkHere, commandLine } from '../support/command-line.ts';
import { startPair } from '../support/gateway.ts';
import {
  type Finished,
  run,
  serve,
  settingsFor,
  sourceMain,
  standInFor,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { redisProgram } from '../support/redis.ts';
import { formsOf } from '../support/secret-forms.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

describe.concurrent('check says in plain words what works', () => {
  it('check ends with 0 where the key was accepted', async (owner) => {
    const standIn = await standInFor(owner);
    const { status, stdout, stderr } = await run(owner, ['check'], { settings: settingsFor(standIn.url) });
    expect(status).toBe(0);
    expect(stdout).toMatch(/GET \/analytics\/accounts\/: 200\. The key was accepted\./);
    expect(standIn.requests.map(({ target }) => target)).toEqual([
      '/api/analytics/accounts/',
      '/api/users/api-keys/',
    ]);
    expect(stdout + stderr).not.toContain(standInKey);
  });

  it('check shows the limit of UPSTREAM_LIMIT, less the reserve, and what an added field says', async (owner) => {
    const standIn = await standInFor(owner);
    standIn.behave({ headers: { 'x-ratelimit-remaining-reads': '57', 'x-ratelimit-reset-reads': '30' } });
    const { report } = await checkHere({
      ...settingsFor(standIn.url),
      ...{ UPSTREAM_LIMIT: '60/1m', UPSTREAM_LIMIT_RESERVE: '10%' },
      UPSTREAM_LIMIT_HEADERS: 'X-RateLimit-Reset-Reads',
    });
    expect(report).toMatchObject({
      limit: {
        told: [{ limit: 54, window: '1m' }],
        stated: [{ field: 'x-ratelimit-reset-reads', remaining: 57 }],
      },
    });
  });

  it('check asks the gateway that runs with these settings what it has learned of the limit', async ({
    onTestFinished,
  }) => {
    const pair = await startPair({ ADMIN_PORT: '0' }, {}, onTestFinished);
    const settings = {
      ...settingsFor(pair.standIn.url),
      ADMIN_PORT: new URL(pair.gateway.adminUrl ?? '').port,
      UPSTREAM_LIMIT: '60/1m',
    };
    const { report } = await checkHere(settings);
    expect(report).toMatchObject({ limit: { learned: { attemptsPerSecond: null } } });
  });

  it('check ends with 1 where the upstream limits requests, with the wait that it states, and says each thing once', async (owner) => {
    const standIn = await standInFor(owner);
    standIn.behave({ status: 429, headers: { 'retry-after': '37' }, body: '{}' });
    const { both, stdout, report } = await checkHere(settingsFor(standIn.url));
    expect(both).toEqual([1, 1]);
    expect(stdout.match(/Wait 37 s, as it says, then check again/g)).toHaveLength(1);
    const lines = stdout.split('\n').map((line) => line.replace(/^GET \S+ /, ''));
    expect(new Set(lines.filter((line) => line.length > 5)).size).toBe(
      lines.filter((line) => line.length > 5).length,
    );
    expect(report).toMatchObject({
      ok: false,
      exitStatus: 1,
      summary: expect.stringContaining('limits requests now'),
      calls: [
        { outcome: 'rate-limited', retryAfterSeconds: 37 },
        { outcome: 'skipped', status: null },
      ],
    });
    // Each of the two asked once: the second read would only have lengthened the limit.
    expect(standIn.requests).toHaveLength(2);
    expect(stdout).toContain(
      'Failed: The upstream limits requests now, so whether the gateway could work is',
    );
  });
});

describe.concurrent('healthcheck', () => {
  it('healthcheck ends with 0 while the gateway is ready and with 1 when it stops or is not there', async (owner) => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), SHUTDOWN_DELAY: '10m', SHUTDOWN_GRACE: '11m' };
    const gateway = await serve(owner, { settings });
    const asked = { settings: { ...settings, PORT: String(gateway.port) } };
    expect(await run(owner, ['healthcheck'], asked)).toMatchObject({
      status: 0,
      stdout: 'ready\n',
      stderr: '',
    });
    gateway.signal('SIGTERM');
    await until(async () => (await gateway.ask('/readyz')).status === 503);
    const address = `http://127.0.0.1:${gateway.port}/readyz`;
    expect(await run(owner, ['healthcheck'], asked)).toMatchObject({
      status: 1,
      stdout: `not ready: ${address} answered with status 503\n`,
    });
    gateway.signal('SIGKILL');
    await gateway.exited;
    expect(await run(owner, ['healthcheck'], asked)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining(`not ready: ${address}: connect ECONNREFUSED`),
    });
  });

  it('healthcheck names the address that it asked in vain', async (owner) => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    owner.onTestFinished(() => void silent.close());
    const { port } = silent.address() as AddressInfo;
    expect(await run(owner, ['healthcheck'], { settings: { PORT: String(port) } })).toMatchObject({
      status: 1,
      stdout: `not ready: http://127.0.0.1:${port}/readyz: no answer within 3 s\n`,
    });
  });

  it('healthcheck ends with 1 where what listens there changes the protocol (101)', async (owner) => {
    const answer = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n';
    const other = createServer((socket) => socket.on('data', () => socket.end(answer)));
    await once(other.listen(0, '127.0.0.1'), 'listening');
    owner.onTestFinished(() => void other.close());
    const { port } = other.address() as AddressInfo;
    expect(await run(owner, ['healthcheck'], { settings: { PORT: String(port) } })).toMatchObject({
      status: 1,
      stdout: `not ready: http://127.0.0.1:${port}/readyz: no answer in HTTP\n`,
    });
  });

  it('healthcheck needs no setting but HOST and PORT, whatever else is wrong', async (owner) => {
    const gateway = await startPair({}, {}, owner.onTestFinished);
    const settings = { PORT: String(gateway.port), CACHE_TTL: 'wrong', HOST: '0.0.0.0' };
    expect(await run(owner, ['healthcheck'], { settings })).toMatchObject({ status: 0, stdout: 'ready\n' });
    const wrong = await run(owner, ['healthcheck'], { settings: { PORT: 'wrong' } });
    expect(wrong).toMatchObject({ status: 2, stderr: 'PORT expects a whole number from 0 to 65535\n' });
  });

  it('healthcheck takes HOST and PORT from the file of --env-file, and says where it cannot be read', async (owner) => {
    const gateway = await startPair({}, {}, owner.onTestFinished);
    const file = join(temporaryFolder(owner), 'settings');
    writeFileSync(file, `PORT=${gateway.port}\n`);
    const found = await run(owner, ['healthcheck', '--env-file', file]);
    expect(found).toMatchObject({ status: 0, stdout: 'ready\n', stderr: '' });
    const missing = await run(owner, ['healthcheck', '--env-file', '/nowhere/settings']);
    expect(missing).toMatchObject({
      status: 2,
      stderr: expect.stringMatching(
        /^--env-file: the file \/nowhere\/settings can't be read \(ENOENT\).*\n$/,
      ),
    });
  });

  it('healthcheck asks on the Unix socket where there is one', async (owner) => {
    const path = join(temporaryFolder(owner), 'socket');
    const settings = { HOST: `unix:${path}` };
    await startPair(settings, {}, owner.onTestFinished);
    expect(await run(owner, ['healthcheck'], { settings })).toMatchObject({ status: 0 });
  });
});

describe.concurrent('the command line', () => {
  it('the settings command lists every setting with its meaning', async () => {
    const { status, stdout } = await commandLine(['settings']);
    expect(status).toBe(0);
    for (const [name, { meaning }] of Object.entries(table)) {
      expect(stdout).toMatch(new RegExp(`^${name}  \\(`, 'm'));
      expect(stdout).toContain(meaning);
    }
  });

  it('settings --json has every setting for programs', async () => {
    const { stdout } = await commandLine(['settings', '--json']);
    const rows = JSON.parse(stdout) as { name: string }[];
    expect(rows.map(({ name }) => name)).toEqual(Object.keys(table));
    expect(rows).toContainEqual({
      name: 'PORT',
      required: false,
      default: '8080',
      meaning: table.PORT.meaning,
    });
  });

  it.for([
    ['settings CACHE_TTL', ['CACHE_TTL']],
    ['settings cache-ttl PORT', ['PORT', 'CACHE_TTL']],
    ['settings UPSTREAM_API_KEY_FROM_EMEA', ['UPSTREAM_API_KEY_FROM_<NAME>']],
  ] as const)('the command %s shows only %j', async ([words, names]) => {
    const { status, stdout } = await commandLine(words.split(' '));
    expect(status).toBe(0);
    expect([...stdout.matchAll(/^(\S+) {2}\(/gm)].map(([, name]) => name)).toEqual(names);
    const json = JSON.parse((await commandLine([...words.split(' '), '--json'])).stdout) as object[];
    expect(json).toHaveLength(names.length);
  });

  it('the settings command names the nearest setting for one that there is not', async () => {
    const { status, stdout, stderr } = await commandLine(['settings', 'CACHE_TLL']);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(
      '"CACHE_TLL" is not a setting (did you mean CACHE_TTL?); "analytics-gateway settings" lists',
    );
  });

  it('options of serve need no word before them, and a file of settings is read', async (owner) => {
    const file = join(temporaryFolder(owner), 'settings.env');
    writeFileSync(file, 'UPSTREAM_BASE_URL=http://127.0.0.1:9/api\nCACHE_TTL=wrong\n');
    const { status, stderr } = await run(owner, ['--env-file', file]);
    expect(status).toBe(2);
    expect(stderr).toMatch(/cannot start:[\s\S]*CACHE_TTL expects a duration/);
    expect(stderr).not.toContain('unknown option');
  });

  it.for([
    [
      '--port 8080',
      "unknown option '--port': PORT is a setting. It stands in the environment or in .env, as PORT=…",
    ],
    ['serve --cache-ttl=5s', "unknown option '--cache-ttl': CACHE_TTL is a setting."],
    ['PORT=8080', 'no command: PORT is a setting.'],
    ['check PORT=8080', 'no argument: PORT is a setting.'],
    ['--base-address x', "unknown option '--base-address'. Settings are no options"],
    ['check --workspac x', '(Did you mean --workspace?)'],
    ['--env-file x check', 'the command stands before its options: analytics-gateway check --…'],
    ['--upstream-api-key=sk_live_0123456789', 'UPSTREAM_API_KEY is a setting.'],
    ['UPSTREAM_API_KEY=sk_live_0123456789', 'UPSTREAM_API_KEY is a setting.'],
    ['check a=sk_live_0123456789', "too many arguments for 'check'"],
    ['nonsense=sk_live_0123456789', "unknown command 'nonsense'"],
  ])('the command line %s says what to do: %s', async ([words = '', said = '']) => {
    const { status, stdout, stderr } = await commandLine(words.split(' '));
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(said);
    // It may be the key.
    expect(stderr).not.toContain('sk_live');
  });

  it('the commands that an option may stand before by mistake are all that there are', async () => {
    const { stdout } = await commandLine(['--help']);
    const [, listed = ''] = /^Commands:\n([\s\S]*)$/m.exec(stdout) ?? [];
    const names = [...listed.matchAll(/^ {2}([a-z]+)/gm)].map(([, name = '']) => name);
    expect(names.length).toBeGreaterThan(5);
    for (const name of names.filter((one) => one !== 'help')) {
      expect((await commandLine(['--env-file', 'x', name])).stderr).toContain(
        `analytics-gateway ${name} --…`,
      );
    }
  });

  it.for(['token --help', 'token'])(
    'the command %s shows each command with all its options',
    async (command) => {
      const { stdout, stderr } = await commandLine(command.split(' '));
      const help = stdout + stderr;
      for (const part of [
        'create <caller>',
        '--expires <when>',
        '--operation <name...>',
        '--json',
        '--file',
      ]) {
        expect(help).toContain(part);
      }
      // What all of them take stands there once.
      expect(help.match(/--file|--env-file/g)).toHaveLength(2);
    },
  );

  it('the command line has the version of the package', async (owner) => {
    const file = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    expect((JSON.parse(file) as { version: string }).version).toBe(version);
    expect(await run(owner, ['--version'])).toMatchObject({ status: 0, stdout: `${version}\n` });
  });

  it.for(['', 'serve', 'check', 'token', 'demo', 'healthcheck', 'settings'])(
    '%s --help teaches, and is 0',
    async (command) => {
      const { status, stdout, stderr } = await commandLine([command, '--help'].filter(Boolean));
      expect(status).toBe(0);
      expect(stdout).toMatch(/^Usage: analytics-gateway/);
      expect(stderr).toBe('');
    },
  );

  it('the help of serve names everything that SIGHUP reads again', async (owner) => {
    const { stdout } = await run(owner, ['serve', '--help']);
    expect(stdout).toContain('SIGHUP reads key, callers and certificate again');
  });

  it.for(['--nonsense', 'serve --port=1', 'nonsense', 'check extra', 'token create'])(
    '%s is wrong usage: 2, with a hint',
    async (command) => {
      const { status, stdout, stderr } = await commandLine(command.split(' '));
      expect(status).toBe(2);
      expect(stdout).toBe('');
      expect(stderr).toMatch(/--help tells more/);
    },
  );
});

describe.concurrent('the demo', () => {
  const shared = sharedOwner();
  const folder = temporaryFolder(shared);
  let traffic: Promise<Finished>;
  beforeAll(() => {
    const settings = { TMPDIR: folder, LOG_LEVEL: 'info', ADMIN_PORT: 'off' };
    traffic = run(shared, ['demo', '--traffic', '--once'], { settings });
  });

  it.skipIf(redisProgram === undefined)(
    'the demo of several gateways asks them in turn, and ends with all of them and their store',
    async (owner) => {
      const { status, stdout, stderr } = await run(owner, ['demo', '--gateways', '3', '--once']);
      expect(stderr).toBe('');
      expect(status).toBe(0);
      expect(stdout.match(/^Another gateway at http/gm)).toHaveLength(2);
    },
  );

  it('the demo needs no setting, shows five scenes, and its key is printed nowhere', async (owner) => {
    const { status, stdout, stderr } = await run(owner, ['demo', '--once'], { main: sourceMain });
    expect(stderr).toBe('');
    expect(status).toBe(0);
    expect(stdout.match(/^ {2}caller sent {8}/gm)).toHaveLength(5);
    expect(stdout).toMatch(/100 × 200/);
    expect(stdout).toMatch(/404 {2}unknown-operation/);
    expect(stdout).toMatch(/the key occurred 0 times/);
    for (const { name, text } of formsOf(standInKey)) expect(stdout, name).not.toContain(text);
    expect(stdout).toContain('both from source');
  });

  it('the demo takes ADMIN_PORT as it takes PORT, and names no console where it is off', async (owner) => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    await new Promise((resolve) => taken.close(resolve));
    const settings = { PORT: '0', ADMIN_PORT: String(port) };
    const shown = await run(owner, ['demo', '--traffic', '--once'], { settings });
    expect(shown.stdout).toContain(`Watch them share it: open http://127.0.0.1:${port}/ in a browser.`);
    const off = await traffic;
    expect(off).toMatchObject({ status: 0, stderr: '' });
    expect(off.stdout).not.toMatch(/Watch them|undefined/);
  });

  it('the demo with --traffic has three callers that share a limit, and leaves no file behind', async () => {
    const { status, stdout, stderr } = await traffic;
    expect(stderr).toBe('');
    expect(status).toBe(0);
    expect(stdout).toContain('The upstream allows 5 requests a second, 10 at once.');
    for (const caller of ['dashboard', 'reports', 'export']) {
      expect(stdout).toMatch(new RegExp(`"caller":"${caller}".*"status":200`));
    }
    expect(readdirSync(folder)).toEqual([]);
  });
});
