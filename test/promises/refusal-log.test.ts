import { describe, expect, it } from 'vitest';
import { mintToken } from '../../src/callers/token.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair } from '../support/gateway.ts';
import { audience, issuerName, makeSigningKey, signJwt, startIssuer } from '../support/issuer.ts';
import { sendRaw } from '../support/raw-request.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const peer = '127.0.0.1';
const long = `/api/${'x'.repeat(1_000)}`;

describe('the line of a refused request has the peer’s address and the path', () => {
  it('the line of a refused request has peer and path, and the host or origin where that was refused', async () => {
    const { token, entry } = enrol('script', { operations: ['list-accounts'] });
    const pair = await startWith([entry], {
      ALLOWED_HOSTS: 'localhost, 127.0.0.1',
      CORS_ORIGINS: 'https://app.example',
    });
    const known = bearer(token);
    const preflight = { origin: 'https://evil.example', 'access-control-request-method': 'GET' };
    await pair.ask(`${accounts}?q=1`);
    await pair.ask('/api/users/api-keys/', { headers: known });
    await pair.ask('/api/nothing?q=1', { headers: known });
    await pair.ask('/nothing');
    await pair.ask(long, { headers: known });
    await pair.ask(`${long}${'y'.repeat(1_000)}`, { headers: known });
    await pair.ask(accounts, { method: 'POST', headers: known });
    await pair.ask(`${accounts}?api_key=1`, { headers: known });
    await pair.ask(accounts, { headers: { ...known, host: 'evil.example:80' } });
    await pair.ask(accounts, { method: 'OPTIONS', headers: preflight });
    const lines = pair.logLines().filter(({ msg }) => msg === 'request');
    expect(
      lines.map(({ status, peer, path, host, origin }) => ({ status, peer, path, host, origin })),
    ).toEqual([
      { status: 401, peer, path: accounts },
      { status: 403, peer, path: '/api/users/api-keys/' },
      { status: 404, peer, path: '/api/nothing' },
      { status: 404, peer, path: '/nothing' },
      { status: 404, peer, path: long.slice(0, 200) },
      { status: 404, peer, path: 'long, 2005 characters' },
      { status: 405, peer, path: accounts },
      { status: 400, peer, path: accounts },
      { status: 421, peer, path: accounts, host: 'evil.example:80' },
      { status: 403, peer, path: accounts, origin: 'https://evil.example' },
    ]);
  });

  it('the line of a request that was not refused has no peer and no path', async () => {
    const pair = await startPair({ RETRY_LIMIT: '0' });
    await pair.ask(accounts);
    await pair.ask('/problems/overloaded');
    pair.standIn.behave({ status: 404 });
    await pair.ask(`${accounts}?not-there`);
    pair.standIn.behave({ status: 301 });
    await pair.ask(`${accounts}?moved`);
    const lines = pair.logLines().filter(({ msg }) => msg === 'request');
    expect(lines.map(({ status }) => status)).toEqual([200, 200, 404, 502]);
    for (const line of lines) {
      for (const name of ['peer', 'path', 'host', 'origin', 'refusal']) expect(line).not.toHaveProperty(name);
    }
  });

  it('the line of bytes that are no request has peer and path as well', async () => {
    const pair = await startPair();
    const last = 'Host: localhost\r\nConnection: close\r\n\r\n';
    const refused: readonly (readonly [bytes: string | Buffer, line: object])[] = [
      [`GET /a?q=1 HTTP/1.1\r\n\r\n`, { status: 400, code: 'NO_HOST', peer, path: '/a' }],
      [
        `GET /b HTTP/1.1\r\nHost: a, b\r\n\r\n`,
        { code: 'HOST_MALFORMED', peer, path: '/b', host: 'malformed, 4 characters' },
      ],
      [
        `GET /c HTTP/1.1\r\nTransfer-Encoding: gzip\r\n${last}`,
        { code: 'TRANSFER_CODING', peer, path: '/c' },
      ],
      [`CONNECT evil.example:443 HTTP/1.1\r\n${last}`, { code: 'CONNECT', peer, path: 'evil.example:443' }],
      [`GET /e?q=1 HTTP/1.1\r\nA : b\r\n${last}`, { code: 'HPE_INVALID_HEADER_TOKEN', peer, path: '/e' }],
      [`GET /f HTTP/1.1\r\nA: ${'a'.repeat(20_000)}\r\n${last}`, { status: 431, peer, path: '/f' }],
      [
        `GET /g HTTP/1.1\r\nHost: localhost\r\n\r\nGET /h HTTP/1.1\r\nA : b\r\n${last}`,
        { status: 400, peer, path: '/h' },
      ],
      ['foul\r\n\r\n', { status: 400, peer }],
      [
        Buffer.from('\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 'latin1'),
        { status: 400, code: 'TLS_HANDSHAKE', reason: 'a TLS handshake: this port speaks plain HTTP', peer },
      ],
    ];
    for (const [bytes] of refused) await pair.exchange(bytes, 5_000);
    const lines = pair.logLines().filter(({ code }) => code !== undefined);
    expect(lines).toMatchObject(refused.map(([, line]) => line));
    expect(lines.map((line) => 'path' in line)).toEqual(refused.map(([, line]) => 'path' in line));
  });

  it('the line of a sender that was too slow has the peer', async () => {
    const pair = await startPair({ HEADERS_TIMEOUT: '1s' });
    await pair.exchange(`GET ${accounts} HTTP/1.1\r\nHost: localhost\r\nA`, 5_000);
    expect(pair.logLines()).toContainEqual(expect.objectContaining({ status: 408, peer }));
  });

  it('lines of the admin listener have peer and path as well', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    await pair.askAdmin('/nothing?q=1');
    await pair.askAdmin('/status', { headers: { host: 'evil.example' } });
    await pair.askAdmin('/cache/purge', { method: 'POST', headers: { origin: 'https://evil.example' } });
    await pair.exchange(
      'GET /livez HTTP/1.1\r\n\r\n',
      5_000,
      Number(new URL(pair.gateway.adminUrl ?? '').port),
    );
    const lines = pair.logLines().filter(({ msg }) => msg === 'the admin listener refused a request');
    expect(lines).toMatchObject([
      { code: 'unknown-operation', peer, path: '/nothing' },
      { code: 'host-not-allowed', peer, path: '/status', host: 'evil.example' },
      { code: 'origin-not-allowed', peer, path: '/cache/purge', origin: 'https://evil.example' },
      { code: 'NO_HOST', peer, path: '/livez' },
    ]);
  });
});

describe('a credential in the wrong place is not written down', () => {
  const foreign = 'their-own-token-0123456789-abcdefgh';
  const damaged = mintToken().slice(0, -3);
  const encoded = (text: string) =>
    [...text].map((character) => `%${character.charCodeAt(0).toString(16)}`).join('');
  const credentials = [
    ['one of our tokens', mintToken()],
    ['a damaged token', damaged],
    ['a token made elsewhere that came with the request', foreign],
    ['a JWT', 'eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJhIn0.c2lnbmF0dXJl'],
    ['the upstream key', standInKey],
  ] as const;

  it.each(credentials)(
    '%s in a path, a Host or an Origin is not written down, as it is and encoded',
    async (_name, credential) => {
      const { entry } = enrol('script');
      const pair = await startWith([entry], {
        ALLOWED_HOSTS: 'localhost',
        CORS_ORIGINS: 'https://app.example',
      });
      const lines = [`Authorization: Bearer ${foreign}`];
      const preflight = ['Access-Control-Request-Method: GET', `Origin: https://${credential}`];
      // Also where the cut would leave half of it.
      for (const text of [
        credential,
        encoded(credential),
        encoded(encoded(credential)),
        encoded(encoded(encoded(credential))),
        'x'.repeat(185) + credential,
      ]) {
        await sendRaw(pair, `/${text}`, { lines });
        await sendRaw(pair, `http://localhost/api/${text}?a`, { lines });
        await pair.exchange(`GET /${text} HTTP/1.1\r\nA : b\r\n${lines[0]}\r\n\r\n`, 5_000);
      }
      await sendRaw(pair, accounts, { host: credential, lines });
      await sendRaw(pair, `http://user:${credential}@localhost${accounts}`, { lines });
      await sendRaw(pair, accounts, { method: 'OPTIONS', lines: [...lines, ...preflight] });
      const written = pair.logText();
      expect(written).toContain('[a credential]');
      for (const part of [credential, encoded(credential), credential.slice(0, 14), credential.slice(-14)]) {
        expect(written).not.toContain(part);
      }
      const refused = pair.logLines().filter(({ status }) => Number(status) >= 400);
      expect(refused.length).toBe(18);
    },
  );
});

describe('text that keeps to no grammar is not written down', () => {
  const secret = 'hunter2';

  it.each([
    ['a path with an encoded question mark', `GET ${accounts}%3Fapi_key=${secret} HTTP/1.1`, ''],
    ['a path with a parameter', `GET ${accounts};key=${secret} HTTP/1.1`, ''],
    ['a path with a user', `GET /user:${secret}@a HTTP/1.1`, ''],
    ['a tunnel to a name without a port', `CONNECT ${secret} HTTP/1.1`, ''],
    ['a tunnel with a query', `CONNECT a:443?${secret} HTTP/1.1`, ''],
    ['an absolute target', `GET http://localhost/a;${secret} HTTP/1.1`, ''],
    ['a Host with a query', `GET ${accounts} HTTP/1.1`, `Host: localhost?key=${secret}`],
    ['a Host that swallowed the next line', 'GET /a HTTP/1.1', `Host: localhost X-API-Key: ${secret}`],
    ['a Host behind what is no user', 'GET /a HTTP/1.1', `Host: localhost X-API-Key: b@${secret}`],
    ['an unknown Host as long as a credential', 'GET /a HTTP/1.1', `Host: ${secret.repeat(4)}`],
    ['an Origin with a query', `OPTIONS ${accounts} HTTP/1.1`, `Origin: https://evil.example?${secret}`],
    [
      'an Origin that swallowed the next line',
      `OPTIONS ${accounts} HTTP/1.1`,
      `Origin: https://a Cookie: ${secret}`,
    ],
    ['a request id with a blank', 'GET /a HTTP/1.1', `X-Request-ID: a ${secret}`],
    ['a method that does not exist', `${secret} /a HTTP/1.1`, ''],
  ])('%s is not written down, by both listeners', async (_name, start, line) => {
    const pair = await startPair({ ADMIN_PORT: '0', CORS_ORIGINS: 'https://app.example' });
    const host = line.startsWith('Host') ? '' : 'Host: localhost\r\n';
    const asked = 'Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n';
    const text = `${start}\r\n${host}${line}${line === '' ? '' : '\r\n'}${asked}`;
    await pair.exchange(text, 5_000);
    await pair.exchange(text, 5_000, Number(new URL(pair.gateway.adminUrl ?? '').port));
    const refused = pair.logLines().filter(({ peer }) => peer !== undefined);
    expect(refused).toHaveLength(2);
    expect(JSON.stringify(refused)).not.toContain(secret);
    expect(pair.logText()).not.toMatch(/unlisted/);
  });
});

describe('the line of a caller that is known by a JWT', () => {
  it('the line of a JWT caller has its subject, from memory as well', async () => {
    const key = await makeSigningKey('one');
    const issuer = await startIssuer([key.jwk]);
    const jwt = { issuer: issuerName, audience, jwks: issuer.jwks, match: { email: '*@example.com' } };
    const pair = await startWith([{ name: 'staff', jwt }]);
    for (const sub of ['ann', 'bob "b"', 'ann']) {
      const headers = bearer(await signJwt(key, { sub, email: 'a@example.com' }));
      for (let at = 0; at < 2; at++) expect((await pair.ask(accounts, { headers })).status).toBe(200);
    }
    const lines = pair.logLines().filter(({ msg }) => msg === 'request');
    expect(lines.map(({ caller, subject }) => [caller, subject])).toEqual(
      ['ann', 'ann', 'bob "b"', 'bob "b"', 'ann', 'ann'].map((subject) => ['staff', subject]),
    );
  });
});
