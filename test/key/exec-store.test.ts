import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { openKeyring } from '../../src/key/keyring.ts';
import { openStore, splitWords } from '../../src/key/open-store.ts';
import { readOf } from '../support/fake-store.ts';

const never = new AbortController().signal;
const path = process.env['PATH'] ?? '';
let directory = '';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'key-exec-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** What this process holds open besides files. */
const pipes = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return /^(socket|pipe):/.test(readlinkSync(`/proc/self/fd/${fd}`));
    } catch {
      return false;
    }
  }).length;

/** `Z`: ended, or a zombie that is not collected yet. */
function stateOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ')[2];
  } catch {
    return 'Z';
  }
}

const load = (command: string, environment = {}) =>
  openStore(`exec:${command}`, { PATH: path, ...environment }, 'UPSTREAM_API_KEY_FROM').load(never);

describe('a command line', () => {
  it.each([
    ['pass show wak/key', ['pass', 'show', 'wak/key']],
    ['  op   read "op://Team Vault/key/password" ', ['op', 'read', 'op://Team Vault/key/password']],
    ["sh -c 'a | b \\ $c'", ['sh', '-c', 'a | b \\ $c']],
    ['a "\\"b\\\\" \'\' ""', ['a', '"b\\', '', '']],
    ['a\\ b c\\|d', ['a b', 'c|d']],
    ["--format='get(payload.data)'x", ['--format=get(payload.data)x']],
    ['gcloud --format=get(payload.data)', ['gcloud', '--format=get(payload.data)']],
  ])('%s is split as documented', (text, words) => {
    expect(splitWords(text)).toEqual({ words });
  });

  it.each([
    ['', /names no program/],
    ['"" x', /names no program/],
    ["a 'b", /never closed/],
    ['a "b', /never closed/],
    ['a "b\\"', /never closed/],
    ['a\\', /ends with a backslash/],
    ['a | b', /no shell/],
    ['a $KEY', /no shell/],
    ['a `b`', /no shell/],
    ['a > b', /no shell/],
    ['a && b', /no shell/],
  ])('%s is refused', (text, reason) => {
    expect(splitWords(text)).toHaveProperty('reason', expect.stringMatching(reason));
  });

  it('that is refused ends the start with the name of the setting and nothing of the command', () => {
    expect(() => openStore('exec:op read token-0123456789 |', {}, 'UPSTREAM_API_KEY_FROM')).toThrow(
      /^UPSTREAM_API_KEY_FROM: (?!.*0123456789)/,
    );
  });
});

describe('a command that gives the key', () => {
  it('is run without a shell, and what it prints is the key', async () => {
    expect(await load('printf %s-%s first-key "0123 *"')).toBe('first-key-0123 *');
  });

  it('gets none of our secrets, nor what our settings name by env:, and the rest of the environment', async () => {
    const secrets = {
      UPSTREAM_API_KEY: 'own-key',
      UPSTREAM_API_KEY_FROM: 'env:NEW',
      UPSTREAM_API_KEY_PREVIOUS_FROM: 'env:OLD',
      UPSTREAM_API_KEY_FROM_EMEA: ' env:EMEA ',
      UPSTREAM_API_KEY_PREVIOUS_FROM_EMEA: 'env:EMEA_OLD',
      UPSTREAM_API_KEY_APAC: 'key-that-no-setting-names',
      ADMIN_TOKEN_FROM: 'env:ADMIN',
      ADMIN_TOKEN: 'token-that-no-setting-names',
      SHARED_STORE_PASSWORD_FROM: 'env:STORE',
      EMEA: 'key-of-emea',
      EMEA_OLD: 'old-key-of-emea',
      OLD: 'old-key',
      NEW: 'new-key',
      ADMIN: 'admin-token',
      STORE: 'store-password',
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=secret',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'authorization=secret',
    };
    const others = { VAULT_TOKEN: 'there', SHARED_STORE: 'redis://store', UPSTREAM_API_KEY_REFRESH: '60s' };
    const text = await load('env', { ...secrets, ...others });
    const names = text.split('\n').map((line) => line.split('=')[0] ?? '');
    expect(Object.keys(secrets).filter((name) => names.includes(name))).toEqual([]);
    expect(names).toEqual(expect.arrayContaining(Object.keys(others)));
  });

  it.each([
    ['in its group', ''],
    ['that has left its group', 'setsid '],
  ])(
    'may leave a program running %s that holds its output open: the store waits for none of it',
    async (_, by) => {
      const pidFile = join(directory, `left${by.trim()}`);
      const before = pipes();
      const left = `${by}sh -c "echo \\$\\$ > ${pidFile}; exec sleep 600"`;
      const script = `${left} & while [ ! -s ${pidFile} ]; do sleep 0.01; done; echo first-key-0123456789`;
      expect(await load(`sh -c '${script}'`)).toBe('first-key-0123456789\n');
      await expect.poll(pipes).toBe(before);
      const pid = Number(readFileSync(pidFile, 'utf8'));
      if (by === '') await expect.poll(() => stateOf(pid)).toBe('Z');
      else process.kill(pid, 'SIGKILL');
    },
  );

  it('is named by its program alone', () => {
    const store = openStore('exec:op read --token=secret-0123456789', {}, 'UPSTREAM_API_KEY_FROM');
    expect(store.describe).toBe('exec:op');
    expect(store.local).toBe(false);
  });
});

describe('a command that looks like the key itself', () => {
  it.each(['sk_live_0123456789abcdef', 'abcdef/0123456789+ABCDEF==', '0123456789abcdef0123456789abcdef'])(
    'a command that looks like the key itself, as %s, is not repeated',
    async (secret) => {
      const store = openStore(`exec:${secret}`, { PATH: path }, 'UPSTREAM_API_KEY_FROM');
      const failure = await store.load(never).catch((error: unknown) => error);
      expect(store.describe).toBe('exec:(not a program)');
      expect(String(failure)).toMatch(/exec:\(not a program\): the command does not exist$/);
    },
  );

  it('is named where there is such a program', async () => {
    const program = join(directory, 'print-key-v2-of-team7');
    await writeFile(program, '#!/bin/sh\necho first-key-0123456789\n', { mode: 0o700 });
    for (const [from, PATH] of [
      [program, path],
      ['print-key-v2-of-team7', `${path}:${directory}`],
    ] as const) {
      const store = openStore(`exec:${from}`, { PATH }, 'UPSTREAM_API_KEY_FROM');
      expect(store.describe).toBe(`exec:${from}`);
      expect(await store.load(never)).toBe('first-key-0123456789\n');
    }
  });

  it.each(['print-the-key', 'no-such-program-anywhere', '/opt/tools/print-key-2'])(
    'the command %s does not look like the key, and is named',
    (program) => {
      expect(openStore(`exec:${program}`, { PATH: path }, 'SETTING').describe).toBe(`exec:${program}`);
    },
  );
});

describe('a command that fails', () => {
  it.each([
    ['no-such-program-anywhere', /exec:no-such-program-anywhere: the command does not exist$/],
    [
      "sh -c 'echo secret-0123456789 >&2; echo secret-0123456789; exit 3'",
      /the command ended with status 3$/,
    ],
    ["sh -c 'kill -9 $$'", /the command was killed by SIGKILL$/],
    ["sh -c 'head -c 100000 /dev/zero'", /the command printed more than 64 KiB$/],
  ])('%s is explained, and nothing that it printed is', async (command, reason) => {
    const failure = await load(command).catch((error: unknown) => error);
    expect(String(failure)).toMatch(reason);
    expect(String(failure)).not.toContain('secret-');
  });

  it('a command that may not be run fails', async () => {
    const script = join(directory, 'not-executable');
    await writeFile(script, '#!/bin/sh\necho first-key-0123456789\n');
    await chmod(script, 0o644);
    await expect(load(script)).rejects.toThrow(/may not be/);
  });

  it('a command that hangs is stopped after ten seconds', async () => {
    const store = openStore('exec:sleep 600', { PATH: path }, 'UPSTREAM_API_KEY_FROM');
    await store.prepare?.();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const answer = store.load(never).catch(String);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await answer).toMatch(/exec:sleep: the command did not end within 10 s$/);
    vi.useRealTimers();
  });

  it('a command that hangs is stopped when its answer is no longer wanted', async () => {
    const limit = new AbortController();
    const store = openStore('exec:sleep 600', { PATH: path }, 'UPSTREAM_API_KEY_FROM');
    const answer = store.load(limit.signal);
    limit.abort();
    await expect(answer).rejects.toThrow(/the command was stopped/);
  });

  it('is stopped with everything that it has started', async () => {
    const pidFile = join(directory, 'pid');
    const limit = new AbortController();
    const script = `sleep 600 & echo $! > ${pidFile}.new; mv ${pidFile}.new ${pidFile}; wait`;
    const store = openStore(`exec:sh -c '${script}'`, { PATH: path }, 'UPSTREAM_API_KEY_FROM');
    const answer = store.load(limit.signal).catch(String);
    await expect.poll(() => existsSync(pidFile)).toBe(true);
    const pid = Number(readFileSync(pidFile, 'utf8'));
    limit.abort();
    await answer;
    await expect.poll(() => stateOf(pid)).toBe('Z');
  });
});

describe('a command that cannot be started', () => {
  it('for want of a descriptor fails alone, and none of its arguments is printed', async () => {
    const openStoreUrl = new URL('../../src/key/open-store.ts', import.meta.url);
    const script = `
      import { closeSync, openSync } from 'node:fs';
      import { inspect } from 'node:util';
      import { openStore } from ${JSON.stringify(openStoreUrl)};
      const told = [];
      for (const kind of ['uncaughtException', 'unhandledRejection']) process.on(kind, (error) => told.push(kind, error));
      const store = openStore('exec:echo first-key --token=secret-0123456789', process.env, 'SETTING');
      await store.prepare();
      const load = () => store.load(new AbortController().signal).catch((error) => error);
      const held = [];
      try { for (;;) held.push(openSync('/dev/null')); } catch {}
      told.push('then', await load(), await load());
      await new Promise((resolve) => setTimeout(resolve, 50));
      held.forEach(closeSync);
      told.push('later', await load());
      process.stdout.write(inspect(told, { showHidden: true, depth: 9 }));`;
    const { stdout, stderr } = await promisify(execFile)('sh', [
      '-c',
      'ulimit -n 64; exec "$0" --input-type=module --eval "$1"',
      process.execPath,
      script,
    ]);
    expect(stderr).toBe('');
    expect(stdout).not.toMatch(/uncaught|unhandled/);
    expect(stdout).toMatch(/then.*exec:echo: the command cannot be used: the process has too many files/s);
    // What it printed, once it could be started.
    expect(stdout).toMatch(/later',\s+'first-key --token=secret-0123456789\\n'/);
    expect(stdout.replace(/'later'.*/s, '')).not.toContain('secret-0123456789');
  });
});

describe('a keyring over a command', () => {
  it('sees what the command gives now when the upstream refuses the key', async () => {
    const value = join(directory, 'value');
    await writeFile(value, 'first-key-0123456789\n');
    const keyring = await openKeyring({
      from: `exec:cat ${value}`,
      environment: { PATH: path },
      check: () => Promise.resolve(undefined),
      refreshMs: 600_000,
      onEvent: () => {},
    });
    expect(await keyring.ready).toBe(true);
    const old = keyring.current;
    if (old === undefined) throw new Error('no key');
    await writeFile(value, 'second-key-0123456789\n');
    keyring.refused(old, readOf('list-accounts'));
    const signal = new AbortController().signal;
    const key = await keyring.replace(old, { signal, deadlineMs: performance.now() + 20_000 });
    expect(key?.hasValue('second-key-0123456789')).toBe(true);
    keyring.close();
  });
});

describe('what a command says', () => {
  const key = 'sk_live_0123456789abcdef';
  /** Runs it once; what it said, and how it ended. */
  async function heard(script: string): Promise<{ said: string[]; outcome: string }> {
    const said: string[] = [];
    const store = openStore(
      `exec:sh -c '${script}'`,
      { PATH: path },
      'UPSTREAM_API_KEY_FROM',
      undefined,
      (text) => void said.push(text),
    );
    const outcome = await store.load(never).catch((error: Error) => error.message);
    return { said, outcome };
  }

  it('is passed on where it is listened to, and is in no message of the store', async () => {
    const { said, outcome } = await heard('echo "not logged in: run vault login" >&2; exit 2');
    expect(said).toEqual(['not logged in: run vault login']);
    expect(outcome).toBe('exec:sh: the command ended with status 2');
  });

  it.each([
    ['as it is', `echo ${key}; echo "the key is ${key}!" >&2; exit 1`],
    ['in base64', `echo ${key}; echo "header $(printf %s ${key} | base64)" >&2; exit 1`],
    ['though it is printed nowhere else', `echo "refused: ${key}" >&2; exit 1`],
    ['in a word that is too short for a key', 'echo pass-9876; echo "got pass-9876" >&2; exit 1'],
  ])('has no key in it %s', async (_, script) => {
    const { said } = await heard(script);
    expect(said).toHaveLength(1);
    expect(said.join()).not.toMatch(/0123456789|c2tfbGl2ZV|9876/);
    expect(said.join()).toMatch(/the key is|header|refused|got/);
  });

  it('is kept to its last 4 KiB', async () => {
    const { said } = await heard(
      'i=0; while [ $i -lt 2000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1',
    );
    expect(said[0]?.length).toBeLessThanOrEqual(4_096);
    expect(said[0]).toMatch(/line 1999$/);
  });
});
