import { describe, expect, it } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair } from '../support/gateway.ts';

/** A request's first lines, and the status that each listener answers with; a probe's where it is another. */
const cases: readonly { name: string; start: string; fields?: string; status: number; probe?: number }[] = [
  { name: 'a plain read', start: 'GET PATH HTTP/1.1', status: 200 },
  // RFC 9112 section 3.2.2: absolute form.
  { name: 'an absolute target', start: 'GET http://localhostPATH HTTP/1.1', status: 200 },
  { name: 'an absolute target in capitals', start: 'GET HTTP://LOCALHOST:80PATH HTTP/1.1', status: 200 },
  { name: 'an absolute target of https', start: 'GET https://localhostPATH HTTP/1.1', status: 200 },
  {
    name: 'an absolute target that is ours, with a Host that is not',
    start: 'GET http://localhostPATH HTTP/1.1',
    fields: 'Host: evil.example\r\n',
    status: 200,
  },
  {
    name: 'an absolute target that is not ours, with a Host that is',
    start: 'GET http://evil.examplePATH HTTP/1.1',
    status: 421,
    probe: 200,
  },
  { name: 'an absolute target with a user', start: 'GET http://user@localhostPATH HTTP/1.1', status: 400 },
  { name: 'an absolute target without authority', start: 'GET http://PATH HTTP/1.1', status: 400 },
  { name: 'an absolute target of another scheme', start: 'GET ftp://localhostPATH HTTP/1.1', status: 400 },
  {
    name: 'an absolute target with two Hosts',
    start: 'GET http://localhostPATH HTTP/1.1',
    fields: 'Host: localhost\r\nHost: localhost\r\n',
    status: 400,
  },
  {
    name: 'an absolute target without Host',
    start: 'GET http://localhostPATH HTTP/1.1',
    fields: '',
    status: 400,
  },
  {
    name: 'an absolute target in HTTP/1.0',
    start: 'GET http://localhostPATH HTTP/1.0',
    fields: '',
    status: 200,
  },
  // Section 3.2.4: asterisk form is for OPTIONS.
  { name: 'GET *', start: 'GET * HTTP/1.1', status: 400 },
  { name: 'HEAD *', start: 'HEAD * HTTP/1.1', status: 400 },
  // Section 3.2: one Host, and a good one.
  { name: 'no Host', start: 'GET PATH HTTP/1.1', fields: '', status: 400 },
  {
    name: 'two Hosts',
    start: 'GET PATH HTTP/1.1',
    fields: 'Host: localhost\r\nHost: evil.example\r\n',
    status: 400,
  },
  {
    name: 'the same Host twice',
    start: 'GET PATH HTTP/1.1',
    fields: 'Host: localhost\r\nhost: localhost\r\n',
    status: 400,
  },
  {
    name: 'two Hosts in HTTP/1.0',
    start: 'GET PATH HTTP/1.0',
    fields: 'Host: localhost\r\nHost: localhost\r\n',
    status: 400,
  },
  // `edge/request-head.test.ts` and `http/address.test.ts` have more.
  ...['', 'a, b', 'a b', '::1'].map((host) => ({
    name: `a Host that is ${JSON.stringify(host)}`,
    start: 'GET PATH HTTP/1.1',
    fields: `Host: ${host}\r\n`,
    status: 400,
  })),
  {
    name: 'a well-formed Host that is not ours',
    start: 'GET PATH HTTP/1.1',
    fields: 'Host: evil.example\r\n',
    status: 421,
    probe: 200,
  },
  // Section 6.3: a last coding that is not chunked.
  ...['GET', 'HEAD', 'POST', 'OPTIONS'].flatMap((method) =>
    ['gzip', 'chunked, gzip', 'chunked\r\nTransfer-Encoding: gzip', ''].map((coding) => ({
      name: `${method} with the transfer coding ${JSON.stringify(coding)}`,
      start: `${method} PATH HTTP/1.1`,
      fields: `Host: localhost\r\nTransfer-Encoding: ${coding}\r\n`,
      status: 400,
    })),
  ),
];

const statusesOf = (came: string) =>
  [...came.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => Number(status));

async function statusesFor(exchange: (bytes: string) => Promise<string>, path: string) {
  return Promise.all(
    cases.map(async ({ name, start, fields = 'Host: localhost\r\n', status, probe }) => {
      const last = 'Connection: close\r\n\r\n';
      const came = statusesOf(await exchange(`${start.replace('PATH', path)}\r\n${fields}${last}`));
      const expected = path === '/livez' ? (probe ?? status) : status;
      return { name, came, expected: [expected] };
    }),
  );
}

describe('what RFC 9112 says of a request line, Host and transfer codings', () => {
  it.each([
    ['an operation', accounts],
    ['a document', '/problems/overloaded'],
    ['a probe', '/livez'],
  ])('RFC 9112 holds for %s', async (_name, path) => {
    const { exchange } = await startPair();
    for (const { name, came, expected } of await statusesFor((bytes) => exchange(bytes, 5_000), path)) {
      expect([name, came]).toEqual([name, expected]);
    }
  });

  it.each(['/status', '/livez'])('RFC 9112 holds for %s of the admin listener', async (path) => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    const port = Number(new URL(pair.gateway.adminUrl ?? '').port);
    const all = await statusesFor((bytes) => pair.exchange(bytes, 5_000, port), path);
    for (const { name, came, expected } of all) {
      // There the Host check is for probes too.
      const isOthers = came[0] === 421 && path === '/livez';
      expect([name, came]).toEqual([name, isOthers ? [421] : expected]);
    }
  });

  it('a caller with a token may use the absolute form, and a malformed request is refused before authentication', async () => {
    const { token, entry } = enrol('script');
    const { exchange } = await startWith([entry], { ALLOWED_HOSTS: 'gateway.internal' });
    const send = async (target: string, fields: string) =>
      statusesOf(await exchange(`GET ${target} HTTP/1.1\r\n${fields}Connection: close\r\n\r\n`, 5_000));
    const known = `Host: ignored.example\r\nAuthorization: Bearer ${token}\r\n`;
    expect(await send(`http://gateway.internal${accounts}`, known)).toEqual([200]);
    expect(await send(`http://gateway.internal:8080${accounts}?a=1`, known)).toEqual([200]);
    expect(await send(`http://gateway.internal${accounts}`, 'Host: gateway.internal\r\n')).toEqual([401]);
    expect(await send(`http://evil.example${accounts}`, known)).toEqual([421]);
    expect(await send('*', known)).toEqual([400]);
    expect(await send(accounts, 'Host: a, b\r\n')).toEqual([400]);
  });

  it('a malformed request leaves a line in the log, with a code that says what was wrong', async () => {
    const { exchange, logLines } = await startPair();
    const all: readonly (readonly [start: string, fields: string, code: string])[] = [
      ['GET /livez HTTP/1.1', '', 'NO_HOST'],
      ['GET /livez HTTP/1.1', 'Host: a\r\nHost: a\r\n', 'HOST_REPEATED'],
      ['GET /livez HTTP/1.1', 'Host: a, b\r\n', 'HOST_MALFORMED'],
      ['GET * HTTP/1.1', 'Host: localhost\r\n', 'TARGET'],
    ];
    for (const [start, fields] of all) await exchange(`${start}\r\n${fields}\r\n`, 5_000);
    expect(logLines().flatMap(({ code }) => code ?? [])).toEqual(all.map(([, , code]) => code));
  });
});
