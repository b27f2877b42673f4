import { rmSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { bearer, enrol, startWith, textOf } from '../support/callers-files.ts';
import { parseExposition } from '../support/exposition-parser.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';
import { audience, issuerName, makeSigningKey, signJwt, startIssuer } from '../support/issuer.ts';

const wrongKey = 'another-key-0123456789';

interface Health {
  readonly health: string;
  readonly since: string;
  readonly startedAt: string;
  readonly reasons: readonly { code: string; detail: string; todo: string }[];
}

async function healthOf({ askAdmin }: Pick<TestGateway, 'askAdmin'>): Promise<Health> {
  return (await askAdmin('/status')).json() as unknown as Health;
}

const codesOf = async (pair: TestGateway): Promise<string[]> =>
  (await healthOf(pair)).reasons.map(({ code }) => code);

describe('the verdict of /status', () => {
  it('the verdict of /status is ok since the start where nothing is wrong', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    expect((await pair.ask(accounts)).status).toBe(200);
    const { health, since, startedAt, reasons } = await healthOf(pair);
    expect({ health, reasons }).toEqual({ health: 'ok', reasons: [] });
    expect(since).toBe(startedAt);
  });

  it('the verdict of /status is failing while the upstream refuses the key, and says what to do, in metrics as well', async () => {
    const pair = await startPair({ ADMIN_PORT: '0', UPSTREAM_API_KEY: wrongKey });
    expect((await pair.ask(accounts)).status).toBe(502);
    const { health, since, startedAt, reasons } = await healthOf(pair);
    expect(health).toBe('failing');
    expect(reasons).toMatchObject([{ code: 'key-refused', todo: expect.stringContaining('new key') }]);
    expect(Date.parse(since)).toBeGreaterThan(Date.parse(startedAt));
    const { value } = parseExposition((await pair.askAdmin('/metrics')).body.toString());
    expect(value('analytics_gateway_health', { state: 'failing' })).toBe(1);
    expect(value('analytics_gateway_health_reason', { code: 'key-refused' })).toBe(1);
  });

  it('the verdict of /status is degraded while the keys of a company login cannot be fetched, before any caller logs in, and the log says so at the start', async () => {
    const key = await makeSigningKey('one');
    const issuer = await startIssuer([key.jwk]);
    issuer.status = 404;
    const jwt = { issuer: issuerName, audience, jwks: issuer.jwks, match: { email: '*@example.com' } };
    const script = enrol('script');
    const pair = await startWith([{ name: 'staff', jwt }, script.entry], { ADMIN_PORT: '0' });
    await expect.poll(() => codesOf(pair)).toEqual(['logins-failing']);
    const { health, reasons } = await healthOf(pair);
    expect(health).toBe('degraded');
    expect(reasons[0]?.detail).toContain(
      `of staff: all get 401, because the keys at ${issuer.jwks} cannot be fetched`,
    );
    expect(reasons[0]?.detail).toContain('answered 404');
    expect(reasons[0]?.todo).toContain('analytics-gateway check');
    expect(pair.logLines().filter(({ level }) => level === 'warn')).toMatchObject([
      { address: issuer.jwks, msg: expect.stringContaining('so every JWT gets 401') },
    ]);
    expect((await pair.ask(accounts, { headers: bearer(script.token) })).status).toBe(200);
    issuer.status = 200;
    const token = await signJwt(key);
    // The first attempts come two seconds after another.
    await expect.poll(async () => (await pair.ask(accounts, { headers: bearer(token) })).status).toBe(200);
    expect(await codesOf(pair)).toEqual([]);
  });

  it('the verdict of /status is degraded while the newest callers file is refused or cannot be read', async () => {
    const script = enrol('script');
    const pair = await startWith([script.entry], { ADMIN_PORT: '0' });
    writeFileSync(pair.file, '{');
    await expect.poll(() => codesOf(pair)).toEqual(['callers-file-refused']);
    expect((await pair.ask(accounts, { headers: bearer(script.token) })).status).toBe(200);
    rmSync(pair.file);
    await expect
      .poll(async () => (await healthOf(pair)).reasons[0]?.detail)
      .toMatch(/the callers file \S+ can't be read \(ENOENT\)/);
    writeFileSync(pair.file, textOf([script.entry]));
    await expect.poll(() => codesOf(pair), { timeout: 5_000 }).toEqual([]);
  });
});
