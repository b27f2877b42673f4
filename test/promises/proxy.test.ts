/** A gateway in a network that lets connections out through a proxy alone, with real proxies. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeCallersFile } from '../support/callers-files.ts';
import { makeCertificate } from '../support/certificate.ts';
import { audience, issuerName, makeSigningKey, signJwt, startIssuer } from '../support/issuer.ts';
import {
  type Owner,
  run,
  serve,
  settingsFor,
  standInFor,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { realProxies, startProxy, startRealProxy, startTlsBefore } from '../support/proxy.ts';
import { type StandIn, standInKey } from '../support/stand-in/stand-in.ts';
import { startVault } from '../support/vault-stand-in.ts';

const accounts = '/api/analytics/accounts/';
const tls = makeCertificate({ names: ['upstream.test'], addresses: ['127.0.0.1', '0.0.0.0'] });
const portOf = (url: string): number => Number(new URL(url).port);
const credentials = { user: 'gateway', password: 'hunter2hunter2' };

async function upstreamFor(
  owner: Owner,
  host: string,
): Promise<{ standIn: StandIn; settings: Record<string, string> }> {
  const standIn = await standInFor(owner, { tls });
  const authorities = join(temporaryFolder(owner), 'authorities.pem');
  writeFileSync(authorities, tls.cert);
  const url = `https://${host}:${portOf(standIn.url)}/api`;
  return { standIn, settings: { ...settingsFor(url), NODE_EXTRA_CA_CERTS: authorities, ADMIN_PORT: '0' } };
}

describe.each(realProxies)('through %s, which asks for credentials', (name) => {
  // Squid has a table of names of its own; to tinyproxy this address is another machine's, as it is to the gateway.
  const host = name === 'squid' ? 'upstream.test' : '0.0.0.0';

  it('upstream, key set and Vault are reached, each by connections that are kept', async (owner) => {
    const proxy = await startRealProxy(owner, name, credentials);
    const { standIn, settings } = await upstreamFor(owner, host);
    const vault = await startVault();
    owner.onTestFinished(async () => void (await vault.close()));
    vault.put(standInKey);
    const key = await makeSigningKey('one');
    const issuer = await startIssuer([key.jwk]);
    const vaultPort = await startTlsBefore(owner, portOf(vault.address), tls);
    const issuerPort = await startTlsBefore(owner, portOf(issuer.jwks), tls);
    const jwks = `https://${host}:${issuerPort}${new URL(issuer.jwks).pathname}`;
    const jwt = { issuer: issuerName, audience, jwks, match: { email: 'ann@example.com' } };
    const file = join(temporaryFolder(owner), 'authorization');
    writeFileSync(file, `${credentials.user}:${credentials.password}`);
    const { UPSTREAM_API_KEY: _, ...others } = settings;
    const behind = {
      ...others,
      UPSTREAM_API_KEY_FROM: 'vault:secret/team/analytics key#key',
      UPSTREAM_API_KEY_CHECK: 'off',
      VAULT_ADDR: `https://${host}:${vaultPort}`,
      VAULT_TOKEN: 'root-token',
      CALLERS_FILE: writeCallersFile([{ name: 'ann', jwt }], owner.onTestFinished),
      https_proxy: `http://127.0.0.1:${proxy.port}`,
      PROXY_AUTHORIZATION_FROM: `file:${file}`,
    };
    const gateway = await serve(owner, { settings: behind });
    await until(async () => (await gateway.ask('/readyz')).status === 200);
    const headers = { authorization: `Bearer ${await signJwt(key)}` };
    for (let reads = 0; reads < 10; reads++)
      expect((await gateway.ask(`${accounts}?${reads}`, { headers })).status).toBe(200);
    expect(standIn.requests).toHaveLength(10);
    expect(issuer.asked).toBe(1);
    const logged = (port: number): number => proxy.log().split(`${host}:${port}`).length - 1;
    // Squid writes its line when a tunnel ends.
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    await until(() => [vaultPort, issuerPort, portOf(standIn.url)].every((port) => logged(port) > 0));
    const report = await run(owner, ['check', '--json'], { settings: behind });
    expect({ status: report.status, stderr: report.stderr }).toEqual({ status: 0, stderr: '' });
    const { proxy: shown } = JSON.parse(report.stdout).settings as { proxy: string };
    expect([shown, gateway.lines().find(({ msg }) => msg === 'listening')?.['proxy']]).toEqual(
      Array(2).fill(`http://127.0.0.1:${proxy.port}`),
    );
    for (const text of [gateway.stdout(), gateway.stderr(), report.stdout, proxy.log()]) {
      expect(text).not.toContain(credentials.password);
      expect(text).not.toContain(standInKey);
    }
  });

  it('credentials that it refuses are named by check, log and metric, unsaid', async (owner) => {
    const proxy = await startRealProxy(owner, name, credentials);
    const { standIn, settings } = await upstreamFor(owner, host);
    const behind = {
      ...settings,
      HTTPS_PROXY: `http://gateway:wrong-password@127.0.0.1:${proxy.port}`,
      RETRY_LIMIT: '0',
    };
    const reason = `the proxy http://127.0.0.1:${proxy.port} refuses the credentials that it was given (40`;
    const checked = await run(owner, ['check'], { settings: behind });
    expect(checked.status).toBe(1);
    expect(checked.stdout).toContain(`T${reason.slice(1)}`);
    const gateway = await serve(owner, { settings: behind });
    const answer = await gateway.ask(accounts);
    expect(answer.status).toBe(502);
    expect(JSON.parse(String(answer.body))).toMatchObject({ code: 'upstream-unreachable' });
    await until(() => gateway.stdout().includes(reason));
    const [, adminUrl = ''] = /"adminUrl":"([^"]+)"/.exec(gateway.stdout()) ?? [];
    const [metrics, status] = await Promise.all(
      ['/metrics', '/status'].map(async (path) => (await fetch(`${adminUrl}${path}`)).text()),
    );
    expect(metrics).toMatch(/outcome="proxy-failed"\} [1-9]/);
    for (const text of [checked.stdout, gateway.stdout(), String(answer.body), metrics, status])
      expect(text).not.toContain('wrong-password');
    expect(standIn.requests).toEqual([]);
  });
});

it('a proxy that was named in vain is warned of, and a file of credentials that is missing stops the start', async (owner) => {
  const proxy = await startProxy(owner);
  const { settings } = await upstreamFor(owner, '127.0.0.1');
  const gateway = await serve(owner, {
    settings: { ...settings, HTTP_PROXY: `http://127.0.0.1:${proxy.port}` },
  });
  await gateway.printed(/HTTP_PROXY is ignored: what goes out by https: asks HTTPS_PROXY alone/);
  const missing = {
    HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`,
    PROXY_AUTHORIZATION_FROM: 'file:/nowhere',
  };
  for (const command of ['serve', 'check']) {
    const { status, stdout, stderr } = await run(owner, [command], { settings: { ...settings, ...missing } });
    expect(status).toBe(2);
    expect(stdout + stderr).toContain('PROXY_AUTHORIZATION_FROM: its file cannot be read (ENOENT)');
  }
});
