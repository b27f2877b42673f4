/** The unit as systemd reads it. Where `systemd-analyze` is missing these are skipped, but for CI, which installs it. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { imageFlags } from '../support/image-flags.ts';

const text = readFileSync(new URL('../../deploy/systemd/analytics-gateway.service', import.meta.url), 'utf8');
const isHere = spawnSync('systemd-analyze', ['--version'], { stdio: 'ignore' }).status === 0;
const isRequired = process.env['REQUIRE_SYSTEMD'] === 'true';

const folder = mkdtempSync(join(tmpdir(), 'gateway-unit-'));
afterAll(() => rmSync(folder, { recursive: true }));
const unit = join(folder, 'analytics-gateway.service');
// The program has to exist for `verify`: this machine's Node may be elsewhere.
writeFileSync(unit, text.replace('/usr/bin/node', process.execPath));

function analyze(...words: readonly string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', words, { encoding: 'utf8' });
  return { status, output: stdout + stderr };
}

describe.skipIf(!isHere && !isRequired)('the systemd unit, by systemd-analyze', () => {
  it('systemd-analyze verify has nothing to say about the unit', () => {
    expect(analyze('verify', unit)).toEqual({ status: 0, output: '' });
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

  it('the systemd unit reloads by SIGHUP, takes the key as a credential, and lets the gateway follow the callers file', () => {
    expect(text).toContain('ExecReload=/bin/kill -HUP $MAINPID');
    expect(text).toContain('DynamicUser=yes');
    expect(text).toContain('LoadCredential=upstream-key:/etc/analytics-gateway/upstream-key\n');
    expect(text).toContain('UPSTREAM_API_KEY_FROM=file:%d/upstream-key');
    // A credential is a copy of the start: a new token would need a restart.
    expect(text).not.toContain('LoadCredential=callers.json');
    expect(text).toContain('CALLERS_FILE=/etc/analytics-gateway/callers.json\n');
  });
});
