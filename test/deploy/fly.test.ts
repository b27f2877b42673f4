import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';

interface FlyConfig {
  readonly kill_signal: string;
  readonly kill_timeout: string;
  readonly env: Readonly<Record<string, string>>;
  readonly files: readonly { readonly guest_path: string }[];
  readonly metrics: { readonly port: number; readonly path: string };
  readonly http_service: {
    readonly internal_port: number;
    readonly checks: readonly { readonly path: string }[];
  };
}

describe.skipIf(!hasLibraries)('fly.toml', () => {
  it('fly.toml gives settings that the gateway takes, its own ports, and more time to end than it takes', async () => {
    const { parse } = (await importLibrary('smol-toml')) as { parse: (text: string) => FlyConfig };
    const fly = parse(readFileSync(new URL('../../fly.toml', import.meta.url), 'utf8'));
    const config = readConfig(fly.env);
    expect(fly.kill_signal).toBe('SIGTERM');
    expect(Number.parseInt(fly.kill_timeout, 10) * 1_000).toBeGreaterThan(config.SHUTDOWN_GRACE);
    expect(fly.files).toMatchObject([{ guest_path: config.CALLERS_FILE }]);
    expect(fly.metrics).toEqual({ port: config.ADMIN_PORT, path: '/metrics' });
    expect(fly.http_service.internal_port).toBe(config.PORT);
    expect(fly.http_service.checks).toMatchObject([{ path: '/readyz' }]);
  });
});
