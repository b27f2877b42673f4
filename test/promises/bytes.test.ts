import { hash } from 'node:crypto';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';
import { until } from '../support/process.ts';

const quoted = (bytes: Buffer) => Buffer.concat([Buffer.from('{"a":"'), bytes, Buffer.from('"}')]);
const everyByte = Buffer.from(
  Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => byte !== 0x22 && byte !== 0x5c),
);
const ofLength = (length: number) => quoted(Buffer.from('é😀x'.repeat(length)).subarray(0, length - 8));

const bodies: [string, Buffer][] = [
  ['ASCII', Buffer.from('{"a":1}')],
  ['characters of several bytes', Buffer.from('{"a":"äöüß€ 😀"}')],
  ['every byte there is', quoted(everyByte)],
  // Where compressing begins, where a small body is no string any more, where the search for the key changes.
  ...[1_023, 1_024, 14_336, 14_337, 16_384, 16_385, 70_000].map((length): [string, Buffer] => [
    `${length} bytes`,
    ofLength(length),
  ]),
];

const tagOf = (body: Buffer) => `"${hash('sha256', body, 'base64url').slice(0, 27)}"`;

function repeated(rawHeaders: readonly string[]): string[] {
  const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
  return names.filter((name, index) => names.indexOf(name) !== index);
}

describe('an answer arrives byte for byte', () => {
  // Each length in one framing: `upstream/transport.test.ts` has both.
  it.each(bodies)('the body of an answer arrives byte for byte: %s', async (_name, body) => {
    const framing = body.length % 2 === 0 ? 'length' : 'chunked';
    const { ask, standIn } = await startPair({ CACHE_TTL: '1h', CORS_ORIGINS: 'https://a.example' });
    standIn.behave({ body, framing });
    const origin = { origin: 'https://a.example' };
    // A miss and one that shares its exchange, then hits, read by a page and by a program.
    const came = await Promise.all([ask(accounts), ask(accounts, { headers: origin })]);
    came.push(await ask(accounts), await ask(accounts, { headers: origin }));
    const head = await ask(accounts, { method: 'HEAD' });
    const confirmed = await ask(accounts, { headers: { 'if-none-match': tagOf(body) } });
    for (const one of came) {
      expect(one.status).toBe(200);
      expect(one.body.equals(body)).toBe(true);
    }
    for (const { headers } of [...came, head]) {
      expect(headers['content-length']).toBe(String(body.length));
      expect(headers.etag).toBe(tagOf(body));
    }
    expect(confirmed.status).toBe(304);
    for (const { headers, rawHeaders } of [...came, head, confirmed]) {
      expect(repeated(rawHeaders)).toEqual([]);
      expect(Math.abs(Date.parse(String(headers.date)) - Date.now())).toBeLessThan(60_000);
    }
    if (body.length < 1_024) return;
    for (const [coding, decode] of [
      ['br', brotliDecompressSync],
      ['gzip', gunzipSync],
    ] as const) {
      const askCoded = () => ask(accounts, { headers: { 'accept-encoding': coding } });
      await until(async () => (await askCoded()).headers['content-encoding'] === coding);
      const coded = await askCoded();
      expect(decode(coded.body).equals(body)).toBe(true);
      expect(coded.headers['content-length']).toBe(String(coded.body.length));
    }
  });
});

describe('an upstream that compresses although it was asked not to', () => {
  const body = ofLength(70_000);
  const tag = 'W/"v1"';

  it.each(['gzip', 'deflate', 'br', 'zstd'] as const)(
    'an answer that the upstream compressed with %s unasked is read as if it were plain',
    async (coding) => {
      const { ask, standIn } = await startPair({ CACHE_TTL: '1h' });
      const answer = { body, compress: [coding], headers: { etag: '"v1"' } };
      standIn.behave(answer);
      // A miss and a hit, then a miss and a revalidation.
      const came = [await ask(accounts), await ask(accounts)];
      standIn.behave({ ...answer, headers: { ...answer.headers, 'cache-control': 'no-cache' } });
      came.push(await ask(`${accounts}?again`));
      standIn.behave({ status: 304, body: '', headers: { etag: '"v1"', 'content-encoding': coding } });
      came.push(await ask(`${accounts}?again`));
      for (const { status, headers, body: received } of came) {
        expect(status).toBe(200);
        expect(received.equals(body)).toBe(true);
        expect(headers['content-encoding']).toBeUndefined();
        expect(headers['content-length']).toBe(String(body.length));
        expect(headers.etag).toBe(tag);
      }
      expect(standIn.requests).toHaveLength(3);
      expect(standIn.requests[2]?.headers['if-none-match']).toBe(tag);
      expect((await ask(accounts, { headers: { 'if-none-match': tag } })).status).toBe(304);
    },
  );
});
