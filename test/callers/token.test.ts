import { hash, randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { digestOf, mayBeToken, mintToken } from '../../src/callers/token.ts';
import { bearer, cleanUp, credentials, open, refusal, writeCallers } from '../support/callers-fixture.ts';

afterEach(cleanUp);

const minted = mintToken();
const again = (text: string, times: number): string => text.repeat(times);

describe('a token too weak to be one', () => {
  const weak: Record<string, string> = {
    'a word': 'dog',
    'the name of its caller': 'nightly-job-token',
    '31 characters': randomBytes(31).toString('hex').slice(0, 31),
    'one character, many times': again('a', 63),
    'a word, many times': again('password', 8),
    'a word, padded': `dog${again('0', 61)}`,
    'seven characters': again('abcdefg', 6),
    'our prefix and a word': 'wag_dog',
    'our prefix and our length': `wag_${again('abcdefghi', 6).slice(0, 49)}`,
    'ours, and a checksum that is wrong': `${minted.slice(0, -1)}${minted.endsWith('A') ? 'B' : 'A'}`,
    'ours, cut': minted.slice(0, -1),
  };

  it.each(Object.keys(weak))(
    'a weak token is refused although its digest is in the file: %s',
    async (name) => {
      const value = weak[name] ?? '';
      const { authenticator } = open(
        writeCallers([
          { name: 'nightly-job', tokens: [{ sha256: digestOf(value) }] },
          { name: 'sidecar', anonymous: true },
        ]),
      );
      for (const sent of [bearer(value), credentials([['X-API-Key', value]])]) {
        const error = await refusal(() => authenticator.authenticate(sent));
        expect(error.code).toBe('caller-unauthenticated');
        expect(error.message).toContain('weak or damaged token of nightly-job');
      }
    },
  );

  it.each<[string, () => string]>([
    ['ours', mintToken],
    ['128 bits in hexadecimal', () => hash('md5', minted)],
    ['a UUID', () => 'b9b3f1f4-4bd2-4c8e-9f0e-0c2d6a7e51d3'],
    ['192 bits in base64', () => randomBytes(24).toString('base64url')],
    ['8 characters that differ, of 32', () => again('abcdefgh', 4)],
  ])('a token is not one of enough bits: %s', async (_, make) => {
    const value = make();
    const { authenticator } = open(writeCallers([{ name: 'a', tokens: [{ sha256: digestOf(value) }] }]));
    expect(await authenticator.authenticate(bearer(value))).toMatchObject({ by: 'token' });
    expect(mayBeToken(value)).toBe(true);
  });
});
