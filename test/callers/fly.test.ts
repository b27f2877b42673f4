import { generateKeyPairSync, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { CallersFileError } from '../../src/callers/callers-file.ts';
import { isFlySourceFresh } from '../../src/callers/fly.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { cleanUp, credentials, makeFolder, open, refusal, writeCallers } from '../support/callers-fixture.ts';

afterEach(() => {
  vi.useRealTimers();
  cleanUp();
});

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const proxy = '172.16.4.2';
const token = mintToken();
const callers = [
  { name: 'reports', fly: { org: 'acme', app: 'reports' } },
  { name: 'script', tokens: [{ sha256: digestOf(token) }] },
  { name: 'sidecar', anonymous: true },
];

function keyFile(): string {
  const file = join(makeFolder(), 'fly-src.pub');
  writeFileSync(file, `${publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('hex')}\n`);
  return file;
}

const seconds = () => Math.floor(Date.now() / 1000);
const statement = (ts = seconds()) => `instance=a1;app=reports;org=acme;ts=${ts}`;
const signed = (text: string): [string, string][] => [
  ['Fly-Src', text],
  ['Fly-Src-Signature', sign(null, Buffer.from(text, 'latin1'), privateKey).toString('base64')],
];

describe('a statement of Fly', () => {
  const madeMs = 1_800_000_000_000;
  const source = { instance: 'a', app: 'b', org: 'c', ts: madeMs / 1_000 };

  it.each([
    [0, true],
    [30_000, true],
    [30_001, false],
    [-30_000, true],
    [-30_001, false],
  ])('a statement of Fly %i ms after it was made is fresh: %s', (awayMs, expected) => {
    expect(isFlySourceFresh(source, madeMs + awayMs)).toBe(expected);
  });
});

describe('a Fly app', () => {
  it.each([proxy, `::ffff:${proxy}`, '::ffff:ac10:402'])(
    'a caller on Fly is authenticated by the signed field, from %s',
    (address) => {
      const { authenticator } = open(writeCallers(callers), { flyKeyFile: keyFile() });
      const authenticated = authenticator.authenticate(credentials(signed(statement()), address));
      expect(authenticated).toMatchObject({ by: 'fly', caller: { name: 'reports' } });
    },
  );

  it.each([-30, 30])('a Fly app is authenticated up to 30 s away (%i)', (away) => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_800_000_000_000 });
    const { authenticator } = open(writeCallers(callers), { flyKeyFile: keyFile() });
    expect(authenticator.authenticate(credentials(signed(statement(seconds() + away)), proxy))).toMatchObject(
      {
        by: 'fly',
      },
    );
  });

  it.each<[string, () => [string, string][], string?]>([
    ['replayed after 30 s', () => signed(statement(seconds() - 32))],
    ['from the future', () => signed(statement(seconds() + 32))],
    ['from another machine, past the proxy', () => signed(statement()), 'fdaa::3'],
    ['from a neighbour of the proxy network', () => signed(statement()), '172.17.0.1'],
    ['over a Unix socket', () => signed(statement()), ''],
    ['of another app', () => signed(statement().replace('app=reports', 'app=reports2'))],
    ['of another organisation', () => signed(statement().replace('acme', 'acme2'))],
    [
      'changed after the signature',
      () => [['Fly-Src', `${statement()} `], signed(statement())[1] as [string, string]],
    ],
    ['with a fifth field', () => signed(`${statement()};admin=1`)],
    ['with a field twice', () => signed(`app=other;${statement()}`)],
    ['with an empty field', () => signed(statement().replace('a1', ''))],
    ['with a fraction of a second', () => signed(`${statement()}.5`)],
    ['with a final semicolon', () => signed(`${statement()};`)],
    ['without signature', () => signed(statement()).slice(0, 1)],
    ['with a signature alone', () => signed(statement()).slice(1)],
    [
      'with an empty signature',
      () => [
        ['Fly-Src', statement()],
        ['Fly-Src-Signature', ''],
      ],
    ],
    ['sent twice', () => [...signed(statement()), ['fly-src', statement()]]],
  ])('a Fly app is 401, never anonymous, when the field is %s', async (_, lines, address = proxy) => {
    const { authenticator } = open(writeCallers(callers), { flyKeyFile: keyFile() });
    const error = await refusal(() => authenticator.authenticate(credentials(lines(), address)));
    expect(error.code).toBe('caller-unauthenticated');
  });

  it('a Fly app is 401 where the proxy of Fly is only what a trusted proxy says of its peer', async () => {
    const { authenticator } = open(writeCallers(callers), { flyKeyFile: keyFile() });
    const behindAnother = { ...credentials(signed(statement()), '10.0.0.1'), peer: proxy };
    await refusal(() => authenticator.authenticate(behindAnother));
  });

  it('a Fly app may send a token instead: the proxy puts Fly-Src on every request, so it never decides against one', async () => {
    const { authenticator } = open(writeCallers(callers), { flyKeyFile: keyFile() });
    const both = (value: string) =>
      credentials([...signed(statement()), ['Authorization', `Bearer ${value}`]], proxy);
    expect(authenticator.authenticate(both(token))).toMatchObject({
      by: 'token',
      caller: { name: 'script' },
    });
    await refusal(() => authenticator.authenticate(both(mintToken())));
  });

  it('a Fly app cannot be a caller without the key of the proxy: the gateway does not start', () => {
    const missing = join(makeFolder(), 'fly-src.pub');
    expect(() => open(writeCallers(callers), { flyKeyFile: missing })).toThrow(CallersFileError);
    writeFileSync(missing, 'not a key');
    expect(() => open(writeCallers(callers), { flyKeyFile: missing })).toThrow(/callers\[0\]\.fly/);
  });
});
