import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run, serve, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';
import { builtMain } from '../support/program.ts';

const upstream = 'http://127.0.0.1:9/api';

describe.concurrent('a process that holds the key is not opened', () => {
  it.for([
    ['serve', { NODE_OPTIONS: '--inspect=127.0.0.1:0' }],
    ['check', { NODE_OPTIONS: '--inspect=127.0.0.1:0' }],
    ['serve', { NODE_DEBUG: 'stream' }],
    ['check', { NODE_V8_COVERAGE: '/tmp' }],
    ['serve', { NODE_TLS_REJECT_UNAUTHORIZED: '0' }],
    ['check', { NODE_TLS_REJECT_UNAUTHORIZED: '0' }],
  ] as const)('%s with %j ends with 2 before anything is asked', async ([command, more], context) => {
    const { status, stderr } = await run(context, [command], {
      settings: { ...settingsFor(upstream), ...more },
    });
    expect(status).toBe(2);
    expect(stderr).toMatch(/not with a secret in memory|NODE_EXTRA_CA_CERTS/);
  });

  it('no inspector is opened by SIGUSR1 in a process that holds the key, whenever it comes', async (context) => {
    const standIn = await standInFor(context);
    const running = serve(context, { settings: settingsFor(standIn.url) });
    const gateway = await running;
    gateway.signal('SIGUSR1');
    await gateway.printed(/SIGUSR1 is ignored/);
    const outcome = await new Promise((resolve) => {
      connect(9229, '127.0.0.1')
        .once('connect', () => resolve('open'))
        .once('error', () => resolve('closed'));
    });
    expect(outcome).toBe('closed');
  });
});

describe.concurrent('a gateway that is the command of its own store', () => {
  it.for([
    ['in the environment', 'check'],
    ['in .env', 'check'],
    ['in .env', 'serve'],
  ] as const)(
    'a gateway that is the command of its own store, named %s, as %s, does not start itself again',
    async ([where, command], context) => {
      const cwd = temporaryFolder(context);
      const count = join(cwd, 'count');
      const script = join(cwd, 'print-key');
      // Counts, and stops a chain that nothing else stops.
      writeFileSync(
        script,
        `#!/bin/sh\necho >> ${count}\n[ $(wc -l < ${count}) -ge 4 ] || exec ${process.execPath} ${builtMain} ${command}\n`,
        { mode: 0o700 },
      );
      const settings: Record<string, string> = { ...settingsFor(upstream), UPSTREAM_API_KEY: '' };
      const from = { UPSTREAM_API_KEY_FROM: `exec:${script}` };
      if (where === 'in .env') {
        const lines = Object.entries({ ...settings, ...from }).map(([name, value]) => `${name}=${value}\n`);
        writeFileSync(join(cwd, '.env'), lines.join(''));
      } else Object.assign(settings, from);
      const { status, stdout } = await run(context, ['check'], { settings, cwd });
      expect(readFileSync(count, 'utf8')).toBe('\n');
      expect(stdout).toContain('the command ended with status 2');
      expect(status).toBe(1);
    },
  );

  it('a gateway that is the command of its own store says why it will not run', async (context) => {
    const { status, stderr } = await run(context, ['check'], {
      settings: { ...settingsFor(upstream), ANALYTICS_GATEWAY_STORE_COMMAND: '1' },
    });
    expect(stderr).toMatch(/its own exec: store/);
    expect(status).toBe(2);
  });
});

describe.concurrent('a listener that cannot be', () => {
  it.for([
    ['HOST=unix:/nonexistent/x.sock', { HOST: 'unix:/nonexistent/x.sock' }, 2, /HOST names a socket/],
    ['HOST=127.0.0.2.invalid', { HOST: '127.255.255.254.invalid', ALLOWED_HOSTS: 'a' }, 2, /HOST/],
  ] as const)('%s is told in plain words', async ([, more, expected, words], context) => {
    const { status, stderr, stdout } = await run(context, ['serve'], {
      settings: { ...settingsFor(upstream), ...more },
    });
    expect(status).toBe(expected);
    expect(stderr).toMatch(words);
    expect(stdout).not.toContain('listener failed');
  });
});
