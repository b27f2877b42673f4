/** What programs that look for weak TLS find at the callers' listener: sslscan, OpenSSL's own client, testssl.sh. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeCertificate } from '../../test/support/certificate.ts';
import { expectThat, startSubject } from './subject.ts';
import { packageVersion, Suite } from './suite.ts';

const subject = await startSubject({
  prepare: async (folder) => {
    const { cert, key } = makeCertificate();
    const [TLS_CERT_FILE, TLS_KEY_FILE] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
    writeFileSync(TLS_CERT_FILE, cert);
    writeFileSync(TLS_KEY_FILE, key, { mode: 0o600 });
    return { TLS_CERT_FILE, TLS_KEY_FILE };
  },
});
const address = `127.0.0.1:${subject.gateway.port}`;

const shown = execFileSync('sslscan', ['--no-colour', address], { encoding: 'utf8', timeout: 120_000 });
const scan = new Suite(
  'sslscan',
  /Version:\s+(\S+)/.exec(shown)?.[1] ?? '?',
  'the certificate, made for tests; compression, which Debian’s OpenSSL cannot',
);
for (const [name, like] of [
  ['SSLv2', /SSLv2\s+disabled/],
  ['SSLv3', /SSLv3\s+disabled/],
  ['TLSv1.0', /TLSv1\.0\s+disabled/],
  ['TLSv1.1', /TLSv1\.1\s+disabled/],
] as const) {
  await scan.try(`${name} is not spoken`, () => expectThat(like.test(shown), shown));
}
for (const version of ['TLSv1.2', 'TLSv1.3']) {
  await scan.try(`${version} is spoken`, () =>
    expectThat(new RegExp(`${version}\\s+enabled`).test(shown), shown),
  );
}
await scan.try('no cipher is weak', () =>
  expectThat(
    !/^(?:Preferred|Accepted).*(?:\b(?:0|40|56|64|112)\s+bits|RC4|3?DES|NULL|EXP|MD5|anon)/im.test(shown),
    shown,
  ),
);
await scan.try('every cipher keeps what was said secret later on (ECDHE, DHE or TLS 1.3)', () =>
  expectThat(!/^(?:Preferred|Accepted)\s+TLSv1\.2\s+\d+ bits\s+(?!ECDHE|DHE|\s)/m.test(shown), shown),
);
await scan.try('no caller renegotiates', () =>
  expectThat(/Session renegotiation not supported|Secure session renegotiation supported/.test(shown), shown),
);
await scan.try('no Heartbleed', () => expectThat(!/(?<!not )vulnerable to heartbleed/.test(shown), shown));
scan.end();

const openssl = execFileSync('openssl', ['version'], { encoding: 'utf8' }).split(' ')[1] ?? '?';
const client = new Suite('openssl s_client', openssl);
/** @returns what the client shows; it sends `input` and is given ten seconds */
const connect = (input: string, ...options: readonly string[]): string => {
  const words = ['s_client', '-connect', address, '-ign_eof', ...options];
  const { stdout, stderr } = spawnSync('openssl', words, { input, encoding: 'utf8', timeout: 10_000 });
  return stdout + stderr;
};
const livez = 'GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
for (const version of ['-tls1_2', '-tls1_3']) {
  await client.try(`${version} is answered`, () =>
    expectThat(connect(livez, version).includes('HTTP/1.1 200'), 'no answer'),
  );
}
for (const version of ['-tls1', '-tls1_1']) {
  await client.try(`${version} is refused`, () => {
    const text = connect(livez, version, '-cipher', 'ALL:@SECLEVEL=0');
    expectThat(!text.includes('HTTP/1.1'), text);
  });
}
await client.try('a renegotiation that the caller asks for (TLS 1.2) is refused', () => {
  const text = connect('R\n', '-tls1_2');
  expectThat(!/RENEGOTIATING[\s\S]*verify return/.test(text), text);
});
client.end();

const testssl = new Suite(
  'testssl.sh',
  packageVersion('testssl.sh'),
  'the certificate, made for tests; HSTS, which would bind other ports of the same name too',
);
const report = join(subject.folder, 'testssl.json');
spawnSync('testssl', ['--quiet', '--color', '0', '--warnings', 'off', '--jsonfile', report, address], {
  stdio: 'ignore',
  timeout: 1_200_000,
});
interface Finding {
  readonly id: string;
  readonly severity: string;
  readonly finding: string;
}
for (const { id, severity, finding } of JSON.parse(readFileSync(report, 'utf8')) as readonly Finding[]) {
  if (/^cert_|^DNS_CAArecord$|^HSTS$/.test(id)) continue;
  await testssl.try(id, () => expectThat(['OK', 'INFO'].includes(severity), `${severity}: ${finding}`));
}
testssl.end();
await subject.stop();
