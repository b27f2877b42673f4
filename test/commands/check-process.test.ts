import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkEnvironment } from '../../src/commands/run-check.ts';
import { enrol, writeCallersFile } from '../support/callers-files.ts';
import { checkHere, failedStart } from '../support/command-line.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { run, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';
import { builtMain, compileCache } from '../support/program.ts';
import { redisProgram, startRedis } from '../support/redis.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const closedPort = 'http://127.0.0.1:9';

describe.concurrent('check of a store that gives no key asks it once, says why, and ends with 1', () => {
  it.for([
    [
      'a command that fails',
      { UPSTREAM_API_KEY_FROM: 'exec:false' },
      'exec:false: the command ended with status 1',
    ],
    [
      'a command that is not there',
      { UPSTREAM_API_KEY_FROM: 'exec:/nowhere/print-key' },
      'exec:/nowhere/print-key: the command does not exist',
    ],
    [
      'a command that hangs',
      { UPSTREAM_API_KEY_FROM: 'exec:sleep 600', REQUEST_TIMEOUT: '1s', UPSTREAM_TIMEOUT: '1s' },
      'exec:sleep: did not answer within 1 s',
    ],
    [
      'a Vault that refuses the connection',
      { UPSTREAM_API_KEY_FROM: 'vault:secret/team#key', VAULT_ADDR: closedPort, VAULT_TOKEN: 'token' },
      'vault:secret/team#key: the Vault at VAULT_ADDR refused the connection',
    ],
  ] as const)('%s', async ([, store, problem], context) => {
    const settings = { ...settingsFor(`${closedPort}/api`), ...store };
    const { status, stdout, stderr } = await run(context, ['check'], { settings });
    const { both, report } = await checkHere(settings);
    context.expect([status, ...both]).toEqual([1, 1, 1]);
    context.expect(stderr).toBe('');
    context.expect(stdout).toContain(`Key: ${problem}\n`);
    context.expect(stdout).toContain('Failed: The secret store gave no key');
    context
      .expect(report)
      .toMatchObject({ ok: false, exitStatus: 1, key: { ok: false, problem }, calls: [] });
  });
});

describe.concurrent('what others say', () => {
  it('what a shared store says, and a name in the settings, steers no terminal when check or a failed start prints it', async (owner) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', () => socket.write('-no \u001b[2J\u009b31m\u202e\r\n'));
    }).listen(0, '127.0.0.1');
    owner.onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const store = { SHARED_STORE: `redis://127.0.0.1:${port}` };
    const { stdout } = await checkHere({ ...settingsFor(`${closedPort}/api`), ...store });
    owner.expect(stdout).toContain('cannot be used: no \\u{1b}[2J\\u{9b}31m\\u{202e}\n');
    const file = { CALLERS_FILE: '/nowhere/\u001b[2J' };
    const { text } = await failedStart({ ...settingsFor(`${closedPort}/api`), ...file });
    owner.expect(text).toContain('/nowhere/\\u{1b}[2J');
    owner.expect(`${stdout}${text}`.replaceAll('\n', '')).not.toMatch(/\p{C}/u);
  });
});

describe.concurrent('check of the learned limit', () => {
  it('check names where no gateway runs that could tell what it has learned', async (owner) => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), UPSTREAM_LIMIT: '60/1m', ADMIN_PORT: '9' };
    const { stdout } = await checkHere(settings);
    owner.expect(stdout).toContain('; what was learned is not known here: no gateway runs at 127.0.0.1:9\n');
  });
});

describe.concurrent('check of company logins', () => {
  it('check fetches the key set of each company login, and is not fine where one cannot be had', async (owner) => {
    const standIn = await standInFor(owner);
    const sets: Record<string, string> = {
      '/good': JSON.stringify({ keys: [{ kty: 'RSA', n: 'AQAB', e: 'AQAB' }] }),
      '/empty': '{"keys":[]}',
      '/page': '<!doctype html>',
    };
    const server = createHttpServer(({ url = '' }, response) => {
      response.statusCode = sets[url] === undefined ? 404 : 200;
      response.end(sets[url]);
    }).listen(0, '127.0.0.1');
    owner.onTestFinished(() => void server.close());
    await once(server, 'listening');
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const login = (name: string, jwks: string) => ({
      name,
      jwt: { issuer: `https://${name}.example`, audience: 'gateway', jwks, match: { sub: '*' } },
    });
    const settings = (...callers: object[]) => ({
      ...settingsFor(standIn.url),
      CALLERS_FILE: writeCallersFile(callers, owner.onTestFinished),
    });
    const good = await checkHere(settings(login('staff', `${base}/good`), login('ops', `${base}/good`)));
    owner.expect(good.both).toEqual([0, 0]);
    owner.expect(good.stdout).toContain(`Company logins of staff, ops: ${base}/good: one key\n`);
    const bad = await checkHere(
      settings(
        ...['good', 'empty', 'page', 'gone'].map((name) => login(name, `${base}/${name}`)),
        login('away', 'http://127.0.0.1:9/keys'),
      ),
    );
    owner.expect(bad.both).toEqual([1, 1]);
    owner.expect(bad.stdout).toContain(`${base}/empty: the key set has no key for signatures\n`);
    owner
      .expect(bad.stdout)
      .toMatch(
        /Failed: The gateway could work, but company logins of empty, page, gone, away would get 401\./,
      );
    owner.expect(bad.report).toMatchObject({
      ok: false,
      logins: [
        { address: `${base}/good`, callers: ['good'], ok: true, keys: 1 },
        { ok: false, keys: 0 },
        { ok: false, problem: 'the keys cannot be fetched: the answer is not a key set' },
        { ok: false, problem: "the keys cannot be fetched: the key set's address answered 404" },
        { ok: false, problem: 'the keys cannot be fetched: its server refused the connection' },
      ],
      calls: [{ outcome: 'accepted' }, { outcome: 'accepted' }],
    });
  });
});

describe.concurrent('check of several workspaces', () => {
  it('check tries each workspace and warns of equal keys, or tries the one that --workspace names', async (owner) => {
    const standIn = await standInFor(owner);
    const settings = {
      ...settingsFor(standIn.url),
      UPSTREAM_API_KEY: '',
      WORKSPACES: 'emea,apac,staging',
      KEY: standInKey,
      WRONG: 'wa_wrong-0123456789',
      UPSTREAM_API_KEY_FROM_EMEA: 'env:KEY',
      UPSTREAM_API_KEY_FROM_APAC: 'env:WRONG',
      UPSTREAM_API_KEY_FROM_STAGING: 'env:KEY',
    };
    const all = await checkHere(settings);
    owner.expect(all.both).toEqual([1, 1]);
    owner.expect(all.report).toMatchObject({
      ok: false,
      summary: 'The gateway cannot work for apac.',
      warnings: [expect.stringMatching(/^emea and staging have the same key \(fingerprint [0-9a-f]{8}\)$/)],
      workspaces: [
        { workspace: 'emea', ok: true },
        { workspace: 'apac', ok: false, calls: [{ outcome: 'key-rejected' }, { outcome: 'skipped' }] },
        { workspace: 'staging', ok: true },
      ],
    });
    owner.expect(all.stdout).toMatch(/^Workspace: emea\n {2}Settings: fine/);
    owner.expect(all.stdout).toContain('\nWarning: emea and staging have the same key');
    const one = await run(owner, ['check', '--workspace', 'emea'], { settings });
    owner.expect([one.status, one.stdout]).toEqual([0, owner.expect.stringMatching(/^Settings: fine/)]);
    const two = await checkHere(settings, ['emea', 'staging']);
    owner.expect(two.stdout.match(/^Workspace: .*$/gm)).toEqual(['Workspace: emea', 'Workspace: staging']);
    const none = await run(owner, ['check', '--workspace', 'emae'], { settings });
    owner.expect(none.status).toBe(2);
    owner
      .expect(none.stdout)
      .toContain('--workspace names no workspace (did you mean "emea"?): there are emea, apac, staging');
  });

  it('check tells at once what is wrong with the keys of all workspaces', async (owner) => {
    const { both, stdout } = await checkHere({
      ...settingsFor(`${closedPort}/api`),
      UPSTREAM_API_KEY: '',
      WORKSPACES: 'emea,apac',
      UPSTREAM_API_KEY_FROM_EMEA: 'nothing',
      UPSTREAM_API_KEY_FROM_APAC: 'file:/nowhere/key',
    });
    owner.expect(both).toEqual([2, 2]);
    owner.expect(stdout).toContain('UPSTREAM_API_KEY_FROM_EMEA: names no store');
    owner.expect(stdout).toContain('/nowhere/key');
  });
});

describe.concurrent('check', () => {
  it('check ends although the command leaves something running that holds its output open', async (context) => {
    const standIn = await standInFor(context);
    const pidFile = join(temporaryFolder(context), 'pid');
    const left = `setsid sh -c "echo \\$\\$ > ${pidFile}; exec sleep 600"`;
    context.onTestFinished(() => void process.kill(Number(readFileSync(pidFile, 'utf8'))));
    const { status } = await run(context, ['check'], {
      settings: {
        ...settingsFor(standIn.url),
        UPSTREAM_API_KEY_FROM: `exec:sh -c '${left} & while [ ! -s ${pidFile} ]; do sleep 0.01; done; echo ${standInKey}'`,
      },
    });
    context.expect(status).toBe(0);
  });

  it('check is not fine with a previous key that cannot be read', async (context) => {
    const standIn = await standInFor(context);
    const problem = 'file:/nowhere/key: the file does not exist';
    const { both, stdout, report } = await checkHere({
      ...settingsFor(standIn.url),
      UPSTREAM_API_KEY_PREVIOUS_FROM: 'file:/nowhere/key',
    });
    context.expect(both).toEqual([1, 1]);
    context.expect(stdout).toContain(`Previous key: ${problem}\n`);
    context.expect(report.previousKey).toEqual({ ok: false, problem });
    context.expect(report.calls.map(({ outcome }) => outcome)).toEqual(['accepted', 'accepted']);
  });

  it('check tells where the previous key is, and its fingerprint', async (context) => {
    const standIn = await standInFor(context);
    const { both, stdout, report } = await checkHere({
      ...settingsFor(standIn.url),
      UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:OLD',
      OLD: 'old-key-0123456789',
    });
    context.expect(both).toEqual([0, 0]);
    context.expect(stdout).toMatch(/^Previous key: env:OLD can be read; fingerprint [0-9a-f]{8}$/m);
    context.expect(report.previousKey).toMatchObject({ ok: true, source: 'env:OLD' });
  });

  it('check is not fine where only the previous key is taken', async (context) => {
    const standIn = await standInFor(context);
    const { both, stdout, report } = await checkHere({
      ...settingsFor(standIn.url),
      UPSTREAM_API_KEY: 'new-key-not-active-0123456789',
      UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:OLD',
      OLD: standInKey,
    });
    context.expect(both).toEqual([1, 1]);
    context.expect(stdout).toMatch(/^Key: env:UPSTREAM_API_KEY can be read/m);
    context.expect(report.key?.source).toBe('env:UPSTREAM_API_KEY');
    context.expect(report.calls.map(({ outcome }) => outcome)).toEqual(['accepted', 'accepted']);
    context.expect(report.summary).toMatch(/refuses the newest key and takes the previous one/);
  });

  it.skipIf(redisProgram === undefined)(
    'check tries the shared store, and is not fine with one that it cannot use',
    async (context) => {
      const standIn = await standInFor(context);
      await using redis = await startRedis('--requirepass', 'the-right-password');
      const settings = {
        ...settingsFor(standIn.url),
        SHARED_STORE: redis.address,
        SHARED_STORE_PASSWORD_FROM: 'env:STORE_PASSWORD',
      };
      // As a process, which ends only where the connection to the store has ended.
      const good = await run(context, ['check'], {
        settings: { ...settings, STORE_PASSWORD: 'the-right-password' },
      });
      context.expect(good.status).toBe(0);
      context.expect(good.stdout).toContain(`Shared store: ${redis.address} can be used\n`);
      const wrong = await checkHere({ ...settings, STORE_PASSWORD: 'a-wrong-password' });
      context.expect(wrong.both).toEqual([1, 1]);
      context.expect(wrong.report.sharedStore).toEqual({
        ...{ ok: false, address: redis.address, problem: 'WRONGPASS' },
        ...{ kind: 'unix', nodes: [redis.address] },
      });
      context.expect(wrong.stdout + JSON.stringify(wrong.report)).not.toContain('a-wrong-password');
      context.expect(wrong.report.calls.map(({ outcome }) => outcome)).toEqual(['accepted', 'accepted']);
      await redis.command('CONFIG', 'SET', 'maxmemory', '1');
      const full = await checkHere({ ...settings, STORE_PASSWORD: 'the-right-password' });
      context.expect(full.report.sharedStore?.problem).toBe('it refuses what gateways do: OOM');
    },
  );

  it('check says for programs, too, that it will not run with such flags', async (context) => {
    const { status, stdout, stderr } = await run(context, ['check', '--json'], {
      settings: { ...settingsFor(`${closedPort}/api`), NODE_OPTIONS: '--report-on-fatalerror' },
    });
    context.expect([status, stderr]).toEqual([2, '']);
    context.expect(JSON.parse(stdout)).toMatchObject({
      exitStatus: 2,
      settings: { problems: [/--report-on-fatalerror/].map((words) => context.expect.stringMatching(words)) },
    });
  });

  it.for([
    ['is not there', undefined, /the callers file \S+ can't be read \(ENOENT\)/],
    ['is not JSON', '{', /JSON/],
    ['holds what serve would refuse', '{"callers":[{"name":"a","tokens":7}]}', /tokens/],
  ] as const)('check ends with 2 where the callers file %s', async ([, text, words], context) => {
    const file = join(temporaryFolder(context), 'callers.json');
    if (text !== undefined) writeFileSync(file, text);
    const { both, stdout, report } = await checkHere({
      ...settingsFor(`${closedPort}/api`),
      CALLERS_FILE: file,
    });
    context.expect(both).toEqual([2, 2]);
    context.expect(stdout).toMatch(words);
    context.expect(report.settings.problems.join()).toMatch(words);
  });

  it.for<[where: string, wrong: Record<string, string>, ...says: string[]]>([
    [
      'the file of ADMIN_TOKEN_FROM is not there',
      { ADMIN_HOST: '0.0.0.0', ADMIN_PORT: '0', ADMIN_TOKEN_FROM: 'file:/nowhere/token' },
      'ADMIN_TOKEN_FROM: file:/nowhere/token: the file does not exist',
    ],
    [
      'the token of ADMIN_TOKEN_FROM is too short',
      { ADMIN_HOST: '0.0.0.0', ADMIN_PORT: '0', ADMIN_TOKEN_FROM: 'env:TOKEN', TOKEN: 'short' },
      'ADMIN_TOKEN_FROM: env:TOKEN: the token is shorter than 16 characters',
    ],
    [
      'the two listeners have one port',
      { PORT: '9091', ADMIN_PORT: '9091' },
      'PORT and ADMIN_PORT must not be the same port (ADMIN_PORT is 9091 where it is not set)',
    ],
    [
      'the two listeners have one socket',
      { HOST: 'unix:/tmp/gateway.sock', ADMIN_HOST: 'unix:/tmp/gateway.sock', ADMIN_PORT: '0' },
      'HOST and ADMIN_HOST must not be the same socket',
    ],
    [
      'ADMIN_PORT is no port',
      { ADMIN_PORT: 'OFF' },
      'ADMIN_PORT expects a whole number from 0 to 65535, or off',
    ],
    [
      'neither file of the certificate can be used',
      { TLS_CERT_FILE: '/nowhere/tls.crt', TLS_KEY_FILE: import.meta.filename },
      'TLS_CERT_FILE names a file that cannot be read (ENOENT)',
      'TLS_KEY_FILE holds no private key in PEM that can be read without a passphrase',
    ],
    [
      'the folder of a socket in HOST is not there',
      { HOST: 'unix:/nowhere/gateway.sock' },
      'HOST names a socket in a folder that does not exist or may not be written to',
    ],
    [
      'the folder of a socket in ADMIN_HOST is not there',
      { ADMIN_HOST: 'unix:/nowhere/admin.sock', ADMIN_PORT: '0' },
      'ADMIN_HOST names a socket in a folder that does not exist or may not be written to',
    ],
  ])('check ends with 2 as serve does, and says the same, where %s', async ([, wrong, ...says], owner) => {
    const settings = { ...settingsFor(`${closedPort}/api`), ...wrong };
    const { both, report } = await checkHere(settings);
    owner.expect(both).toEqual([2, 2]);
    owner.expect(report.settings.problems).toEqual(says);
    const text = `analytics-gateway cannot start:\n${says.map((line) => `  ${line}\n`).join('')}`;
    owner.expect(await failedStart(settings)).toMatchObject({ status: 2, text });
  });

  it('check says that a socket of HOST=fd:3 was not tried, for it has none of its own', async (owner) => {
    const upstream = await standInFor(owner);
    const settings = {
      ...settingsFor(upstream.url),
      ...{ HOST: 'fd:3', ADMIN_HOST: 'fd:4', ADMIN_PORT: '0' },
      CALLERS_FILE: writeCallersFile([enrol('script').entry], owner.onTestFinished),
    };
    const { both, stdout, report } = await checkHere(settings);
    owner.expect(both).toEqual([0, 0]);
    owner
      .expect(report.notices)
      .toEqual([
        owner.expect.stringMatching(/^HOST=fd:3 was not tried: /),
        owner.expect.stringMatching(/^ADMIN_HOST=fd:4 was not tried: /),
      ]);
    owner.expect(stdout).toMatch(/^Notice: HOST=fd:3 was not tried/m);
  });

  it('check names the callers whose rules are not enforced', async (owner) => {
    const upstream = await standInFor(owner);
    const trying = { ...enrol('reports').entry, enforce: false };
    const CALLERS_FILE = writeCallersFile([enrol('script').entry, trying], owner.onTestFinished);
    const { both, report } = await checkHere({ ...settingsFor(upstream.url), CALLERS_FILE });
    owner.expect(both).toEqual([0, 0]);
    owner
      .expect(report.notices)
      .toEqual([owner.expect.stringMatching(/^limits and grants of reports are not enforced/)]);
  });

  it('check warns of a variable without effect beside what is wrong with the callers file', async (owner) => {
    const { both, stdout, report } = await checkHere({
      ...settingsFor(`${closedPort}/api`),
      CALLERS_FILE: '/nowhere/callers.json',
      UPSTREAM_ANYTHING: 'x',
    });
    owner.expect(both).toEqual([2, 2]);
    owner.expect(stdout).toMatch(/^Without effect: UPSTREAM_ANYTHING/m);
    owner.expect(report.settings.warnings).toHaveLength(1);
    owner.expect(report.settings.problems).toHaveLength(1);
  });
});

describe.concurrent('check of a command that gives no key', () => {
  const script = findOnPath('script');
  const isRequired = process.env['REQUIRE_TERMINAL'] === 'true';
  const command = 'printf "not logged \\033[2Jin\\nsk_live_0123456789abcdef" >&2; exit 3';
  const { UPSTREAM_API_KEY: _, ...others } = settingsFor('http://127.0.0.1:9/api');
  const settings = { ...others, UPSTREAM_API_KEY_FROM: `exec:sh -c '${command}'` };
  const checkAtTerminal = async (
    environment: Readonly<Record<string, string>>,
    json = false,
  ): Promise<string> => {
    let written = '';
    const write = (text: string): void => {
      written += text;
    };
    const all = { PATH: process.env['PATH'], ...environment };
    expect(await checkEnvironment(all, { json, isTerminal: true, write })).toBe(1);
    return written;
  };

  it.skipIf(script === undefined && !isRequired)(
    'check shows on a terminal what the command itself said, without the key and what steers the terminal',
    async (owner) => {
      const words = `exec '${process.execPath}' -- '${builtMain}' check`;
      const under = [script ?? 'script', '--quiet', '--return', '--command', words, '/dev/null'];
      const child = spawnSync(under[0] ?? '', under.slice(1), {
        cwd: temporaryFolder(owner),
        env: { PATH: process.env['PATH'], NODE_COMPILE_CACHE: compileCache, ...settings },
        encoding: 'utf8',
      });
      expect(child.stdout).toContain('Key: exec:sh: the command ended with status 3');
      expect(child.stdout).toContain('  it said: not logged \\u{1b}[2Jin\r\n  it said: […]\r\n');
      expect(child.stdout).not.toContain('sk_live');
      expect(child.status).toBe(1);
    },
  );

  it('check shows nothing of it elsewhere, nor in JSON', async () => {
    const { both, stdout, report } = await checkHere(settings);
    expect(both).toEqual([1, 1]);
    expect(stdout).toContain('Key: exec:sh: the command ended with status 3');
    expect(stdout + JSON.stringify(report)).not.toMatch(/not logged|it said/);
    expect(await checkAtTerminal(settings, true)).not.toContain('not logged');
  });

  it('check shows what the command of the previous key said as well', async (owner) => {
    const standIn = await standInFor(owner);
    const text = await checkAtTerminal({
      ...settingsFor(standIn.url),
      UPSTREAM_API_KEY_PREVIOUS_FROM: `exec:sh -c '${command}'`,
    });
    expect(text).toMatch(/^Previous key: .* status 3\n {2}it said: not logged /m);
  });
});
