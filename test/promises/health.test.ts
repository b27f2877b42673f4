import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { bearer, enrol, startWith, textOf } from '../support/callers-files.ts';
import { parseExposition } from '../support/exposition-parser.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';
import { audience, issuerName, makeSigningKey, signJwt, startIssuer } from '../support/issuer.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

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

function keyFile(key: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-health-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'key'), key);
  return join(folder, 'key');
}

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

  it('the verdict of /status is degraded while the previous key is in use', async () => {
    const pair = await startPair({
      ADMIN_PORT: '0',
      UPSTREAM_API_KEY: wrongKey,
      UPSTREAM_API_KEY_PREVIOUS_FROM: `file:${keyFile(standInKey)}`,
    });
    expect((await pair.ask(accounts)).status).toBe(200);
    expect(await healthOf(pair)).toMatchObject({
      health: 'degraded',
      reasons: [{ code: 'key-fallen-back', detail: expect.stringContaining('file:') }],
    });
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
    await expect
      .poll(async () => (await pair.ask(accounts, { headers: bearer(token) })).status, { timeout: 10_000 })
      .toBe(200);
    expect(await codesOf(pair)).toEqual([]);
  });

  it('the verdict of /status is degraded while the store holds a bad value', async () => {
    const file = keyFile(standInKey);
    const pair = await startPair({ ADMIN_PORT: '0', UPSTREAM_API_KEY_FROM: `file:${file}` });
    writeFileSync(file, 'short');
    await expect.poll(() => codesOf(pair)).toEqual(['key-store-failing']);
    writeFileSync(file, standInKey);
    await expect.poll(() => codesOf(pair)).toEqual([]);
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

  it('the verdict of /status is degraded where a token ends within 7 days, and names the caller', async () => {
    const expires = new Date(Math.trunc(Date.now() / 1_000 + 3 * 86_400) * 1_000).toISOString();
    const [first] = (enrol('reports').entry as { tokens: object[] }).tokens;
    const pair = await startWith([{ name: 'reports', tokens: [{ ...first, expires }] }], { ADMIN_PORT: '0' });
    expect(await healthOf(pair)).toMatchObject({
      health: 'degraded',
      reasons: [{ code: 'token-ending', detail: `A token of reports ends at ${expires}.` }],
    });
  });

  it('the verdict of /status is failing while the circuit to the upstream is open', async () => {
    const pair = await startPair({ ADMIN_PORT: '0', RETRY_LIMIT: '0' });
    pair.standIn.behave({ status: 500, body: 'down' });
    const askAndLook = async () => {
      await pair.ask(accounts);
      return await healthOf(pair);
    };
    await expect
      .poll(askAndLook, { timeout: 10_000 })
      .toMatchObject({ health: 'failing', reasons: [{ code: 'circuit-open' }] });
  });

  it('the verdict of /status is degraded while the gate is closed', async () => {
    const pair = await startPair({ ADMIN_PORT: '0', REQUEST_TIMEOUT: '1s' });
    pair.standIn.behave({ status: 429, headers: { 'retry-after': '60' }, body: '{}' });
    expect((await pair.ask(accounts)).status).toBe(429);
    expect(await healthOf(pair)).toMatchObject({ health: 'degraded', reasons: [{ code: 'gate-closed' }] });
  });
});
