/** The unit as systemd reads it. Where `systemd-analyze` is missing these are skipped, but for CI, which installs it. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { readDocument } from '../support/documents.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { imageFlags } from '../support/image-flags.ts';
import { findOldNode } from '../support/old-node.ts';
import { builtFolder } from '../support/program.ts';

const read = (path: string): string =>
  readFileSync(new URL(`../../deploy/systemd/${path}`, import.meta.url), 'utf8');
const text = read('analytics-gateway.service');
const dropIns = ['refresh.conf', 'followed-callers.conf', 'socket.conf'] as const;
const isHere = findOnPath('systemd-analyze') !== undefined;
const isRequired = process.env['REQUIRE_SYSTEMD'] === 'true';

const folder = mkdtempSync(join(tmpdir(), 'gateway-unit-'));
afterAll(() => rmSync(folder, { recursive: true }));
const unit = join(folder, 'analytics-gateway.service');
// The program has to exist for `verify`: this machine's Node may be elsewhere.
writeFileSync(unit, text.replaceAll('/usr/bin/node', process.execPath));

function settingsIn(dropIn: string): Record<string, string> {
  return Object.fromEntries(
    [...dropIn.matchAll(/^Environment=(\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
  );
}

/** The first number of `systemd-analyze --version`. */
const version = Number(/^systemd (\d+)/.exec(analyze('--version').output)?.[1] ?? 0);

function analyze(...words: readonly string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', words, { encoding: 'utf8' });
  return { status, output: stdout + stderr };
}

describe.skipIf(!isHere && !isRequired)('the systemd unit, by systemd-analyze', () => {
  it('systemd-analyze verify has nothing to say about the unit', () => {
    expect(analyze('verify', unit)).toEqual({ status: 0, output: '' });
  });

  it.for(dropIns)('systemd-analyze verify has nothing to say about the unit with %s', (name) => {
    const directory = join(folder, 'analytics-gateway.service.d');
    mkdirSync(directory);
    onTestFinished(() => rmSync(directory, { recursive: true }));
    writeFileSync(join(directory, name), read(`analytics-gateway.service.d/${name}`));
    writeFileSync(join(folder, 'analytics-gateway.socket'), read('analytics-gateway.socket'));
    const { output } = analyze('verify', unit);
    // An older systemd does not know the one setting, says so, and goes on.
    const isUnknown = name === 'refresh.conf' && version < 260;
    expect(output.trim()).toMatch(
      isUnknown ? /^\S+: Unknown key '?RefreshOnReload'?[^\n]*ignoring\.$/ : /^$/,
    );
  });

  it('systemd-analyze verify has nothing to say about the socket, and about the template with its drop-in', () => {
    const socket = join(folder, 'analytics-gateway.socket');
    writeFileSync(socket, read('analytics-gateway.socket'));
    expect(analyze('verify', socket)).toEqual({ status: 0, output: '' });
    const template = join(folder, 'analytics-gateway@.service');
    // One file for both: git keeps the template as a link.
    expect(read('analytics-gateway@.service')).toBe(text);
    writeFileSync(template, read('analytics-gateway@.service').replaceAll('/usr/bin/node', process.execPath));
    mkdirSync(`${template}.d`);
    writeFileSync(
      join(`${template}.d`, 'processes.conf'),
      read('analytics-gateway@.service.d/processes.conf'),
    );
    expect(analyze('verify', join(folder, 'analytics-gateway@1.service'))).toEqual({ status: 0, output: '' });
  });

  it('systemd-analyze security finds an exposure of at most 3.0 in the unit', () => {
    const { status, output } = analyze('security', '--offline=true', '--threshold=30', unit);
    expect(output).toMatch(/Overall exposure level .*: (?:[0-2]\.\d|3\.0)/);
    expect(status).toBe(0);
  });
});

describe('the systemd unit', () => {
  it('the systemd unit starts the program with the flags of the image', () => {
    expect(text).toContain(
      `ExecStart=/usr/bin/node ${imageFlags().join(' ')} -- /opt/analytics-gateway/dist/main.js serve\n`,
    );
  });

  it('the systemd unit asks the program first which Node it needs, with no flag that an old one refuses', () => {
    const [, before = ''] = /^ExecStartPre=(.*)$/m.exec(text) ?? [];
    const [, started = ''] = /^ExecStart=(.*)$/m.exec(text) ?? [];
    const program = '/opt/analytics-gateway/dist/main.js';
    expect(before).toBe(`/usr/bin/node -- ${program} --version`);
    expect(started).toMatch(new RegExp(`^/usr/bin/node .* -- ${program} serve$`));
  });

  const oldNode = findOldNode();
  it.skipIf(oldNode === undefined)(
    'the systemd unit under an old Node ends with the sentence of the program',
    () => {
      const [, before = ''] = /^ExecStartPre=(.*)$/m.exec(text) ?? [];
      const words = before
        .replace('/usr/bin/node', oldNode ?? '')
        .replace('/opt/analytics-gateway', builtFolder)
        .split(' ');
      const { status, stderr } = spawnSync(words[0] ?? '', words.slice(1), { encoding: 'utf8' });
      expect(stderr).toMatch(
        /^analytics-gateway: Node \S+ or later is needed, and \S+ is \S+\. Install .*\n$/,
      );
      expect(status).toBe(2);
    },
  );

  it('the systemd unit reloads by SIGHUP, and takes key and callers file as credentials, so that its user may read them', () => {
    expect(text).toContain('ExecReload=/bin/kill -HUP $MAINPID');
    expect(text).toContain('DynamicUser=yes');
    expect(text).toContain('LoadCredential=upstream-key:/etc/analytics-gateway/upstream-key\n');
    expect(text).toContain('LoadCredential=callers.json:/etc/analytics-gateway/callers.json\n');
    expect(text).toContain('UPSTREAM_API_KEY_FROM=file:%d/upstream-key\n');
    expect(text).toContain('CALLERS_FILE=%d/callers.json\n');
  });

  it('the gateway takes what the socket and the template set', () => {
    const socket = settingsIn(read('analytics-gateway.service.d/socket.conf'));
    expect(socket).toEqual({ HOST: 'fd:3' });
    const processes = settingsIn(read('analytics-gateway@.service.d/processes.conf').replaceAll('%i', '2'));
    const base = { UPSTREAM_BASE_URL: 'https://analytics.example.com/api', CALLERS_FILE: '/callers.json' };
    expect(readConfig({ ...base, ...socket }).HOST).toBe('fd:3');
    expect(readConfig({ ...base, ...processes })).toMatchObject({
      REUSE_PORT: 'on',
      ADMIN_PORT: 9092,
      SHARED_STORE: { kind: 'unix', path: '/run/valkey/valkey-server.sock' },
    });
  });

  it('the systemd unit has two drop-ins for tokens without a restart: fresh copies, or the file itself', () => {
    const [refresh, followed] = dropIns.map((name) => read(`analytics-gateway.service.d/${name}`));
    expect(refresh).toContain('RefreshOnReload=credentials\n');
    expect(followed).toContain('Environment=CALLERS_FILE=/etc/analytics-gateway/callers.json\n');
    for (const name of dropIns) expect(readDocument('deploy/README.md')).toContain(name);
  });
});
