import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readSettingsText } from '../../src/commands/environment.ts';
import { describeStartFailure } from '../../src/commands/start-problems.ts';
import { readConfig } from '../../src/config/config.ts';
import { settings as table } from '../../src/config/settings.ts';
import { text } from '../../src/config/values.ts';
import { startGateway } from '../../src/gateway/gateway.ts';
import { KeyStoreError } from '../../src/key/store.ts';
import { commandLine, failedStart } from '../support/command-line.ts';
import { accounts, ask } from '../support/gateway.ts';
import { imageFlags } from '../support/image-flags.ts';
import { findOldNode } from '../support/old-node.ts';
import { run, serve, settingsFor, standInFor, start, temporaryFolder, until } from '../support/process.ts';
import { builtMain } from '../support/program.ts';
import { formsIn } from '../support/secret-forms.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const executable = fileURLToPath(new URL('../../bin/analytics-gateway.js', import.meta.url));
const secret = 'hunter2-hunter2-hunter2';
const upstream = 'http://127.0.0.1:9/api';

describe.concurrent('settings are all checked before anything happens', () => {
  it('each wrong setting is named, none of their values is shown, and the status is 2', async (owner) => {
    const names = Object.entries(table).flatMap(([name, { read }]) => (read === text ? [] : [name]));
    const wrong = `${secret} // {}`;
    const settings = Object.fromEntries([...names, 'UPSTREAM_TIMEOUTS'].map((name) => [name, wrong]));
    const { status, stdout, stderr } = await run(owner, ['serve'], { settings });
    expect(status).toBe(2);
    expect(stdout).toBe('');
    for (const name of names) expect(stderr, name).toMatch(new RegExp(`^  ${name} `, 'm'));
    expect(stderr).toContain('did you mean UPSTREAM_TIMEOUT?');
    expect(stderr).not.toContain(secret);
  });

  it.for<[name: string, settings: Record<string, string>, says: RegExp]>([
    ['no setting at all', {}, /UPSTREAM_BASE_URL is required/],
    [
      'an open listener without callers',
      { ...settingsFor(upstream), HOST: '0.0.0.0' },
      /HOST must be loopback/,
    ],
    [
      'a secret where a callers file is to be named',
      { ...settingsFor(upstream), CALLERS_FILE: secret },
      /the callers file \(not a path\) can't be read/,
    ],
    [
      'credentials in the base address',
      settingsFor(`https://user:${secret}@analytics.example.com/api`),
      /UPSTREAM_BASE_URL must not contain credentials/,
    ],
    [
      'plain HTTP elsewhere',
      settingsFor('http://analytics.example.com/api'),
      /UPSTREAM_BASE_URL must be https:/,
    ],
  ])(
    'a wrong setting ends the start with 2, by name and without its value: %s',
    async ([, settings, says]) => {
      const { status, text, logged } = await failedStart(settings);
      expect(status).toBe(2);
      expect(text).toMatch(says);
      expect(text + logged).not.toContain(secret);
    },
  );
});

describe.concurrent('a key that cannot be one ends the start, with a reason and without the key', () => {
  // Those that are read as bytes or by half; `key/store.test.ts` has the others.
  const keys: readonly [name: string, bytes: Buffer][] = [
    ['empty', Buffer.from('')],
    ['UTF-16 with its mark', Buffer.from(`\uFEFF${secret}`, 'utf16le')],
    ['not UTF-8', Buffer.from(`${secret}\xff`, 'latin1')],
    ['CRLF inside', Buffer.from(`${secret}\r\nX-Evil: ${secret}`)],
    ['64 KiB', Buffer.from(secret.padEnd(65_536, 'x'))],
  ];

  it.for(keys)(
    'a key that cannot be one ends the start, with a reason and without the key: %s',
    async ([, bytes], owner) => {
      const standIn = await standInFor(owner);
      const folder = temporaryFolder(owner);
      const file = join(folder, 'key');
      const socket = join(folder, 'socket');
      writeFileSync(file, bytes);
      for (const from of ['env:UPSTREAM_API_KEY', `file:${file}`]) {
        const environment = {
          ...settingsFor(standIn.url),
          HOST: `unix:${socket}`,
          UPSTREAM_API_KEY: bytes.toString(),
          UPSTREAM_API_KEY_FROM: from,
        };
        const failure = await startGateway({ config: readConfig(environment), environment }).then(
          () => undefined,
          (error: unknown) => error,
        );
        expect(failure).toBeInstanceOf(KeyStoreError);
        expect((failure as Error).message).toContain(from);
        expect((failure as Error).message).not.toContain('hunter2');
        expect(existsSync(socket)).toBe(false);
      }
      expect(standIn.counts.connections).toBe(0);
    },
  );
});

describe.concurrent('a start that cannot be', () => {
  it('a start on a port that is taken ends with 1', async (owner) => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    owner.onTestFinished(() => void other.close());
    const { port } = other.address() as { port: number };
    const { status, stderr } = await run(owner, [], {
      settings: { ...settingsFor(upstream), PORT: String(port) },
    });
    expect(status).toBe(1);
    expect(stderr).toContain(`127.0.0.1:${port} is in use: choose another PORT`);
  });

  it('a failed start tells the problems of settings, key and callers file all at once', async (owner) => {
    const folder = temporaryFolder(owner);
    const callers = join(folder, 'callers.json');
    writeFileSync(callers, '{"callers":[{"name":"a b"}]}');
    const settings = {
      UPSTREAM_URL: upstream,
      CACHE_TTL: 'soon',
      UPSTREAM_API_KEY_FROM: `file:${folder}/key`,
      CALLERS_FILE: callers,
    };
    for (const command of ['serve', 'check']) {
      const { status, stdout, stderr } = await run(owner, [command], { settings });
      expect(status).toBe(2);
      const said = stdout + stderr;
      expect(said).toContain('UPSTREAM_BASE_URL is required');
      expect(said).toContain('UPSTREAM_URL is not a setting; did you mean UPSTREAM_BASE_URL?');
      expect(said).toContain('CACHE_TTL expects a duration');
      expect(said).toContain(`file:${folder}/key: the file does not exist`);
      expect(said).toContain(`${folder}/callers.json: callers[0].name`);
    }
  });

  it('a start that fails for an unreadable callers file names its path, owner and mode', async (owner) => {
    const file = join(temporaryFolder(owner), 'callers.json');
    mkdirSync(file, { mode: 0o750 });
    const { uid } = statSync(file);
    const { status, stderr } = await run(owner, [], {
      settings: { ...settingsFor(upstream), CALLERS_FILE: file },
    });
    expect(status).toBe(2);
    expect(stderr).toContain(
      `the callers file ${file} can't be read (EISDIR): it belongs to user ${uid} and`,
    );
    expect(stderr).toContain('mode 0750; this process is user');
  });
});

describe.concurrent('a pipe in the place of a file', () => {
  const pipeIn = (folder: string): string => {
    const fifo = join(folder, 'fifo');
    execFileSync('mkfifo', [fifo]);
    return fifo;
  };

  it.for<[name: string, words: string[], setting: string, said: (fifo: string) => string]>([
    ['CALLERS_FILE', ['serve'], 'CALLERS_FILE', (fifo) => `the callers file ${fifo} is a pipe, not a file`],
    ['TLS_CERT_FILE', ['check'], 'TLS_CERT_FILE', () => 'TLS_CERT_FILE names a pipe, not a file'],
    ['token list', ['token', 'list'], 'CALLERS_FILE', (fifo) => `the callers file ${fifo} is a pipe, not`],
    ['token create', ['token', 'create', 'a'], 'CALLERS_FILE', (fifo) => `${fifo} is a pipe, not a file`],
  ])(
    'a pipe in the place of a file is named, and not waited for: %s',
    async ([, words, setting, said], owner) => {
      const fifo = pipeIn(temporaryFolder(owner));
      const settings = { ...settingsFor(upstream), TLS_KEY_FILE: fifo, TLS_CERT_FILE: fifo };
      const { status, stdout, stderr } = await run(owner, words, {
        settings: setting === 'CALLERS_FILE' ? { ...settingsFor(upstream), CALLERS_FILE: fifo } : settings,
      });
      expect(stdout + stderr).toContain(said(fifo));
      expect(status).toBe(words[0] === 'token' ? 1 : 2);
    },
  );

  it('a key file that is a pipe is named as one', async (owner) => {
    const fifo = pipeIn(temporaryFolder(owner));
    const { UPSTREAM_API_KEY: _, ...settings } = settingsFor(upstream);
    const ended = await run(owner, ['serve'], {
      settings: { ...settings, UPSTREAM_API_KEY_FROM: `file:${fifo}` },
    });
    expect(ended.stderr).toContain(`file:${fifo}: the file is a pipe, not a file`);
    expect(ended.status).toBe(2);
  });

  it('a gateway whose callers file becomes a pipe says so, takes the file that follows, and ends on SIGTERM', async (owner) => {
    const folder = temporaryFolder(owner);
    const file = join(folder, 'callers.json');
    writeFileSync(file, '{"callers":[{"name":"one","anonymous":true}]}');
    const gateway = await serve(owner, { settings: { ...settingsFor(upstream), CALLERS_FILE: file } });
    renameSync(pipeIn(folder), file);
    await gateway.printed(/callers\.json is a pipe, not a file/);
    writeFileSync(join(folder, 'new'), '{"callers":[{"name":"two","anonymous":true}]}');
    renameSync(join(folder, 'new'), file);
    await gateway.printed(/"msg":"the callers file was read again"/);
    renameSync(pipeIn(folder), file);
    await until(() => gateway.stdout().split('is a pipe, not a file').length === 3);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
  });
});

describe('the flags of the image', () => {
  const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
  const flags = imageFlags().join(' ');

  it('the flags of the image fill its compile cache too, which is one for each set of flags', () => {
    const filling = /^RUN UPSTREAM_BASE_URL=(?:.*\\\n)*.*$/m.exec(read('Dockerfile'))?.[0] ?? '';
    expect(filling.replaceAll(/\s*\\\n\s*/g, ' ')).toContain(`node ${flags} -- /app/dist/main.js serve`);
  });
});

describe.concurrent('it starts', () => {
  it('the gateway starts with the flags of the image, and with other NODE_OPTIONS', async (owner) => {
    const flags = imageFlags();
    expect(flags).toContain('--disable-sigusr1');
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, {
      settings: { ...settingsFor(standIn.url), NODE_OPTIONS: '--max-old-space-size=128' },
      flags,
    });
    expect((await gateway.ask(accounts)).status).toBe(200);
    expect((await gateway.ask(accounts, { headers: { 'accept-encoding': 'br' } })).status).toBe(200);
    expect((await gateway.ask('/api/none')).status).toBe(404);
    gateway.signal('SIGUSR1');
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    expect(gateway.stderr()).toBe('');
  });

  it('the gateway starts with settings from .env, where what is set already wins', async (owner) => {
    const standIn = await standInFor(owner);
    const cwd = temporaryFolder(owner);
    writeFileSync(
      join(cwd, '.env'),
      `UPSTREAM_BASE_URL=${standIn.url}\nUPSTREAM_API_KEY=${standInKey}\nPORT=1\nLOG_LEVEL=debug\n`,
    );
    const gateway = await serve(owner, { cwd, settings: { PORT: '0' } });
    expect((await gateway.ask(accounts)).status).toBe(200);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    // No banner of the library among the lines.
    expect(gateway.lines()[0]).toMatchObject({ level: 'info' });
    expect(gateway.stderr()).toBe('');
  });

  it('the gateway starts with settings from the file of --env-file, and not from .env', async (owner) => {
    const standIn = await standInFor(owner);
    const cwd = temporaryFolder(owner);
    const base = `UPSTREAM_BASE_URL=${standIn.url}\nPORT=0\nUPSTREAM_API_KEY_CHECK=off\n`;
    writeFileSync(join(cwd, '.env'), `${base}UPSTREAM_API_KEY=another-key-0123456789\n`);
    writeFileSync(join(cwd, 'team.env'), `${base}UPSTREAM_API_KEY=${standInKey}\n`);
    const gateway = start(owner, ['serve', '--env-file', 'team.env'], { cwd });
    const [, url] = await gateway.printed(/"url":"(http:[^"]*)"/);
    const came = await ask({ host: '127.0.0.1', port: Number(new URL(url ?? '').port) }, accounts, {});
    expect(came.status).toBe(200);
    expect(await run(owner, ['check', '--env-file', 'team.env'], { cwd })).toMatchObject({ status: 0 });
  });

  it.for<[name: string, main: string]>([
    ['the built program', builtMain],
    ['the executable of the package, with -- before it,', executable],
  ])(
    'a file of --env-file that is missing, no file or malformed ends %s with 2, by its path, with every other problem',
    async ([, main], owner) => {
      const cwd = temporaryFolder(owner);
      const file = join(cwd, 'team.env');
      writeFileSync(file, `PORT=0\n${secret}\nCACHE_TTL=soon\n\nUPSTREAM_API_KEY="${secret}\n`);
      const settings = { RETRY_LIMIT: 'many' };
      for (const command of ['serve', 'check']) {
        for (const [words, said, ...others] of [
          [['--env-file', 'none.env'], `${join(cwd, 'none.env')} can't be read (ENOENT): it does not exist`],
          [['--env-file=.'], `${cwd} can't be read (EISDIR)`],
          [['--env-file=/dev/zero'], '/dev/zero is a device, not a file'],
          [
            ['--env-file=team.env'],
            `${file}, line 2: is not NAME=value, a comment or empty`,
            `${file}, line 5: is not`,
            'CACHE_TTL expects',
          ],
        ] as const) {
          const ended = await run(owner, [command, ...words], { cwd, main, settings });
          const text = ended.stdout + ended.stderr;
          expect(text).toContain(`--env-file: the file ${said}`);
          for (const other of [...others, 'RETRY_LIMIT expects', 'UPSTREAM_BASE_URL is required']) {
            expect(text).toContain(other);
          }
          expect(text).not.toContain(secret);
          expect(ended.status, text).toBe(2);
        }
      }
    },
  );

  it.for<[name: string, line: string, said: string]>([
    [
      'a flag',
      'NODE_OPTIONS=--heapsnapshot-signal=SIGUSR2',
      '--heapsnapshot-signal: not with a secret in memory',
    ],
    [
      'an exported flag',
      'export NODE_OPTIONS="--inspect=127.0.0.1:0"',
      '--inspect: not with a secret in memory',
    ],
    [
      'a flag that only Node reads',
      "A: '\nNODE_OPTIONS=--cpu-prof\n'",
      '--cpu-prof: not with a secret in memory',
    ],
    ['NODE_DEBUG', 'NODE_DEBUG=stream', 'NODE_DEBUG: not with a secret in memory'],
    [
      'a variable that only Node reads',
      "A: '\nNODE_V8_COVERAGE=/tmp\n'",
      'NODE_V8_COVERAGE: not with a secret',
    ],
    ['no verification', 'NODE_TLS_REJECT_UNAUTHORIZED=0', 'NODE_TLS_REJECT_UNAUTHORIZED=0: the key would go'],
  ])(
    'a file of settings that tells Node to show or send away a secret ends the start with 2, by its line: %s',
    async ([, line, said]) => {
      const file = '/nowhere/team.env';
      const right = { UPSTREAM_BASE_URL: upstream, UPSTREAM_API_KEY_FROM: 'file:/nowhere/key' };
      const at = 1 + line.split('\n').findIndex((one) => one.includes('NODE_'));
      const failure = await readSettingsText('the file', file, `${line}\n`).catch((error: unknown) => error);
      const { status, text } = await describeStartFailure(failure, right);
      expect(text).toContain(`the file ${file}, line ${at}: ${said}`);
      // The store was not opened.
      expect(text).not.toContain('does not exist');
      expect(status).toBe(2);
    },
  );

  it.skipIf(findOldNode() === undefined)(
    'the executable of the package prints nothing of the environment where it starts a newer Node with NODE_DEBUG',
    ({ expect }) => {
      const { status, stderr, stdout } = spawnSync(findOldNode() ?? '', [executable, 'check'], {
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], NODE_DEBUG: 'child_process', UPSTREAM_API_KEY: standInKey },
      });
      expect(formsIn(stdout + stderr, standInKey)).toEqual([]);
      expect(stderr).toContain('NODE_DEBUG is set: not with a secret in memory');
      expect(status).toBe(2);
    },
  );

  it('serve and check refuse a file of settings that tells Node to show a secret, named or not', async (owner) => {
    const cwd = temporaryFolder(owner);
    const key = `UPSTREAM_API_KEY_FROM=file:${join(cwd, 'none')}`;
    const flag = 'NODE_OPTIONS=--heapsnapshot-signal=SIGUSR2';
    for (const name of ['team.env', '.env']) {
      writeFileSync(join(cwd, name), `UPSTREAM_BASE_URL=${upstream}\n${key}\n${flag}\n`);
    }
    for (const words of [['serve'], ['serve', '--env-file', 'team.env'], ['check', '--env-file=team.env']]) {
      const file = join(cwd, words.length === 1 ? '.env' : 'team.env');
      const { status, stdout, stderr } = await run(owner, words, { cwd });
      expect(stderr).toContain(
        `the file ${file}, line 3: --heapsnapshot-signal: not with a secret in memory`,
      );
      expect(stdout + stderr).not.toContain('does not exist');
      expect(status).toBe(2);
    }
  });

  it.runIf(process.platform !== 'win32')(
    'the gateway starts with settings from a pipe, and says that one holds nothing',
    async (owner) => {
      const standIn = await standInFor(owner);
      const cwd = temporaryFolder(owner);
      const lines = Object.entries(settingsFor(standIn.url)).map(([name, value]) => `${name}=${value}\n`);
      const fifo = join(cwd, 'fifo');
      execFileSync('mkfifo', [fifo]);
      const running = start(owner, ['check', '--env-file', fifo], { cwd });
      await writeFile(fifo, lines.join(''));
      expect(await running.exited, running.stdout() + running.stderr()).toBe(0);

      const empty = start(owner, ['serve', '--env-file', fifo], { cwd });
      await writeFile(fifo, '');
      expect(await empty.exited).toBe(2);
      expect(empty.stderr()).toContain(`--env-file: the file ${fifo} is a pipe with nothing in it`);
    },
  );

  it.runIf(process.platform !== 'win32')(
    'a start that waits for a pipe that nothing writes to says so, and SIGTERM ends it',
    async (owner) => {
      const fifo = join(temporaryFolder(owner), 'fifo');
      execFileSync('mkfifo', [fifo]);
      const running = start(owner, ['serve', '--env-file', fifo]);
      await until(() => running.stderr().includes(`waiting for the end of --env-file: the file ${fifo}`));
      running.signal('SIGTERM');
      expect(await running.exited).toBe('SIGTERM');
    },
  );

  it.for([
    ['missing', 9, 'not found'],
    ['drained by Node', 2, 'is a pipe with nothing in it: Node has read it before the gateway'],
  ] as const)(
    'without -- before the executable Node takes the file of --env-file first, so one that is %s ends with %i',
    async ([state, expected, said], owner) => {
      const cwd = temporaryFolder(owner);
      const file = join(cwd, 'team.env');
      const read = 'exec "$0" "$1" serve --env-file';
      const script = state === 'missing' ? `${read} ${file}` : `echo PORT=0 | { ${read} /dev/stdin; }`;
      const ended = await new Promise<{ status: unknown; stderr: string }>((resolve) => {
        execFile('/bin/sh', ['-c', script, process.execPath, executable], { cwd }, (error, _stdout, stderr) =>
          resolve({ status: error?.code, stderr }),
        );
      });
      expect(ended.stderr).toContain(said);
      expect(ended.status).toBe(expected);
    },
  );

  it.for(['serve', 'check'])(
    '%s with a second --env-file ends with 2, and reads neither',
    async (command) => {
      const { status, stderr } = await commandLine([
        command,
        '--env-file',
        'one.env',
        '--env-file',
        'two.env',
      ]);
      expect(stderr).toContain("option '--env-file <path>' argument 'two.env' is invalid. It is given once.");
      expect(status).toBe(2);
    },
  );

  it('of a file with many lines that are no assignment, five are named and the others counted', async (owner) => {
    const cwd = temporaryFolder(owner);
    writeFileSync(join(cwd, 'team.env'), `UPSTREAM_BASE_URL=${upstream}\n${`${secret}\n`.repeat(1_000)}`);
    const { status, stderr } = await run(owner, ['serve', '--env-file=team.env'], {
      cwd,
      settings: settingsFor(upstream),
    });
    expect(stderr.match(/line \d+: is not/g)).toEqual([2, 3, 4, 5, 6].map((line) => `line ${line}: is not`));
    expect(stderr).toContain(`${join(cwd, 'team.env')}: and 995 more such lines`);
    expect(status).toBe(2);
  });

  it('an .env with a line that is no assignment ends with 2, and a folder of that name is not read', async (owner) => {
    const cwd = temporaryFolder(owner);
    writeFileSync(join(cwd, '.env'), `UPSTREAM_BASE_URL=${upstream}\nUPSTREAM_API_KEY ${secret}\n`);
    const { status, stderr } = await run(owner, ['serve'], { cwd });
    expect(stderr).toContain(`${join(cwd, '.env')}, line 2: is not NAME=value`);
    expect(stderr).not.toContain(secret);
    expect(status).toBe(2);
    const other = temporaryFolder(owner);
    mkdirSync(join(other, '.env'));
    const passed = await run(owner, ['check'], { cwd: other, settings: settingsFor(upstream) });
    expect(passed.stdout).toContain('Settings: fine');
  });

  it('the start warns of a password of the shared store that goes to another machine in clear', async (owner) => {
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, {
      settings: {
        ...settingsFor(standIn.url),
        SHARED_STORE: 'redis://store.invalid',
        SHARED_STORE_PASSWORD_FROM: 'env:STORE_PASSWORD',
        STORE_PASSWORD: secret,
      },
    });
    const [line = ''] = await gateway.printed(/.*the password of the shared store is not safe.*/);
    expect(JSON.parse(line)).toMatchObject({ level: 'warn', reason: expect.stringContaining('in clear') });
    expect(gateway.stdout()).not.toContain(secret);
  });

  it('the start warns of a variable that looks like a setting and has no effect', async (owner) => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), UPSTREAM_KEY: 'a-value', UPSTREAM_SOMETHING: 'x' };
    const gateway = await serve(owner, { settings });
    await gateway.printed(/UPSTREAM_SOMETHING/);
    const reasons = gateway.lines().flatMap(({ level, reason }) => (level === 'warn' ? [reason] : []));
    expect(reasons).toEqual([
      'UPSTREAM_KEY is not a setting; did you mean UPSTREAM_API_KEY?',
      'UPSTREAM_SOMETHING is not a setting',
    ]);
    expect(gateway.stdout()).not.toContain('a-value');
    const { stdout } = await run(owner, ['check'], { settings });
    expect(stdout).toContain('Without effect: UPSTREAM_SOMETHING is not a setting\n');
  });
});
