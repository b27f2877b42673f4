import { globSync, readFileSync } from 'node:fs';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Key } from '../../src/key/key.ts';
import { Scrubber } from '../../src/key/scrub.ts';

const value = 'wak_"live"/0+1\\2%3&4<5>6\'7=.~$^(x)[y]|?*';

const percentAll = (text: string, upper: boolean) =>
  [...Buffer.from(text)]
    .map((byte) => `%${upper ? byte.toString(16).toUpperCase() : byte.toString(16)}`)
    .join('');
const jsonAll = (text: string) =>
  [...text].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

/** Every way in which a program writes a key that it was given. */
const shapes: ReadonlyArray<readonly [string, (key: string) => string]> = [
  ['raw', (key) => key],
  ['base64', (key) => Buffer.from(key).toString('base64')],
  ['base64, one byte before', (key) => Buffer.from(`x${key}y`).toString('base64')],
  ['base64, two bytes before', (key) => Buffer.from(`xx${key}yy`).toString('base64')],
  ['base64url', (key) => Buffer.from(key).toString('base64url')],
  ['base64url, two bytes before', (key) => Buffer.from(`::${key}`).toString('base64url')],
  ['base64 with escaped slashes', (key) => Buffer.from(key).toString('base64').replaceAll('/', '\\/')],
  ['percent-encoded where needed', (key) => encodeURIComponent(key)],
  [
    'percent-encoded where needed, lower case',
    (key) => encodeURIComponent(key).replace(/%../g, (c) => c.toLowerCase()),
  ],
  ['as a form', (key) => new URLSearchParams({ key }).toString()],
  ['percent-encoded throughout', (key) => percentAll(key, true)],
  ['percent-encoded throughout, lower case', (key) => percentAll(key, false)],
  ['percent-encoded twice', (key) => encodeURIComponent(encodeURIComponent(key))],
  ['as JSON', (key) => JSON.stringify(key)],
  ['as JSON in JSON', (key) => JSON.stringify(JSON.stringify({ key }))],
  ['as JSON with escaped slashes', (key) => JSON.stringify(key).replaceAll('/', '\\/')],
  ['as JSON escaped throughout', jsonAll],
  ['as HTML', (key) => key.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')],
  ['as HTML references', (key) => [...key].map((c) => `&#${c.charCodeAt(0)};`).join('')],
  ['hexadecimal', (key) => Buffer.from(key).toString('hex')],
  ['hexadecimal, upper case', (key) => Buffer.from(key).toString('hex').toUpperCase()],
  ['upper case', (key) => key.toUpperCase()],
];

const keys = [
  value,
  'plain-key-0123456789-ABCDEF',
  '"".__".:*">>\'"{}_"',
  'C:\\temp\\key\\012345\\',
  '/+%=/+-_/+AZ/+zy/+09',
];

function scrubberOf(...values: string[]) {
  const scrubber = new Scrubber();
  for (const [at, one] of values.entries()) scrubber.know(new Key(one, at + 1));
  return scrubber;
}

describe.each(keys)('the key %j', (key) => {
  const scrubber = scrubberOf(key);

  it.each(shapes)('the key is found in a small body, %s', (_, shape) => {
    const body = Buffer.from(`{"a":1,"b":[${shape(key)}],"c":2}`);
    expect(scrubber.leakIn({ headers: {}, body })).toBeDefined();
  });

  it.each(shapes)('the key is found in a large body, %s, wherever it stands', async (_, shape) => {
    const text = Buffer.from(shape(key));
    // A turn of the event loop reads 256 KiB.
    const filler = Buffer.alloc(256 * 1_024, '{"name":"filler"},');
    for (const before of [filler.length - text.length / 2, filler.length - 1, 2 * filler.length - 8]) {
      const body = Buffer.concat([filler, filler, filler]);
      text.copy(body, Math.floor(before));
      expect(await scrubber.leakIn({ headers: {}, body }), `${before}`).toBeDefined();
    }
  });

  it('the copy that is searched of a large body is given back at once', async () => {
    const body = Buffer.alloc(16 * 2 ** 20, '{"name":"filler"},');
    const before = process.memoryUsage().arrayBuffers;
    expect(await scrubber.leakIn({ headers: {}, body })).toBeUndefined();
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(2 ** 20);
  });

  it.each(shapes)('the key is found in a field, %s', (_, shape) => {
    const headers = { date: 'now', 'x-echo': ['a', shape(key)] };
    expect(scrubber.leakIn({ headers, body: Buffer.alloc(0) })).toBeDefined();
  });

  it.each(shapes)('the key is redacted in a log line, %s, and the line stays JSON', (_, shape) => {
    const line = JSON.stringify({ level: 30, msg: `before ${shape(key)} after` });
    const clean = scrubber.redact(line);
    expect(clean).toContain(new Key(key, 1).fingerprint);
    expect(JSON.parse(clean)).toHaveProperty('level', 30);
    expect(scrubber.redact(clean)).toBe(clean);
  });
});

describe('keys that hold one another', () => {
  const short = 'shared-beginning-0123';
  const long = `${short}-and-the-rest-of-it`;

  it.each([
    ['the shorter first', [short, long]],
    ['the longer first', [long, short]],
  ] as const)(
    'keys of which one begins with the other are redacted to the last character, whichever was known first: %s',
    (_, [one, other]) => {
      const scrubber = scrubberOf(one, other);
      for (const [, shape] of shapes) {
        const line = `before ${shape(long)}, ${shape(short)} after`;
        expect(scrubberOf(long).leakIn({ headers: {}, body: line })).toBeDefined();
        expect(scrubber.redact(line)).toBe(scrubberOf(short).redact(scrubberOf(long).redact(line)));
      }
    },
  );
});

describe('a store that goes back and forth between two keys', () => {
  it('makes no search slow, and the last of either is still found', async () => {
    const scrubber = new Scrubber();
    const values = ['first-key-0123456789', 'second-key-0123456789'] as const;
    const known = Array.from({ length: 20_000 }, (_, at) => new Key(values[at % 2 === 0 ? 0 : 1], at + 1));
    for (const key of known) scrubber.know(key);
    // No clock: a search that tries each of the keys would not end within the test's time.
    const body = Buffer.alloc(2 ** 20, '{"name":"first-key and second-key"},');
    expect(await scrubber.leakIn({ headers: {}, body })).toBeUndefined();
    for (const key of known.slice(0, 100)) scrubber.forget(key);
    const found = values.map((one) => scrubber.leakIn({ headers: {}, body: one }));
    expect(found).toEqual([known[100], known[101]]);
  });

  it('leaves none to be found once all are forgotten', () => {
    const scrubber = new Scrubber();
    const [one, other] = [new Key(value, 1), new Key(value, 2)];
    for (const key of [one, other]) scrubber.know(key);
    scrubber.forget(one);
    expect(scrubber.leakIn({ headers: {}, body: value })).toBe(other);
    scrubber.forget(other);
    expect(scrubber.leakIn({ headers: {}, body: value })).toBeUndefined();
  });
});

describe('what is not the key', () => {
  const scrubber = scrubberOf(value);

  it('a text that is not the key is let through', () => {
    const body = Buffer.from(JSON.stringify({ text: `${value.slice(0, -1)}-` }));
    expect(scrubber.leakIn({ headers: { 'content-type': 'application/json' }, body })).toBeUndefined();
    expect(scrubber.redact('nothing to see')).toBe('nothing to see');
  });

  it('a text that is not the key is not searched for once it was forgotten', () => {
    const key = new Key(value, 1);
    const fresh = new Scrubber();
    fresh.know(key);
    fresh.forget(key);
    expect(fresh.leakIn({ headers: {}, body: Buffer.from(value) })).toBeUndefined();
  });
});

describe('a large answer whose search fails', () => {
  it('a large answer whose search fails, as for want of memory, is the last that fails', async () => {
    const scrubber = scrubberOf(value);
    const body = Buffer.alloc(300 * 1_024, 'a');
    const noMemory = Object.assign(Buffer.from(body), {
      copy() {
        throw new RangeError('Array buffer allocation failed');
      },
    });
    await expect(scrubber.leakIn({ headers: {}, body: noMemory })).rejects.toThrow(RangeError);
    await expect(scrubber.leakIn({ headers: {}, body })).resolves.toBeUndefined();
  });
});

describe('whatever is logged', () => {
  const scrubber = scrubberOf('old-key-0123456789abcdef', value);
  const planted = fc.constantFrom<(key: string) => unknown>(
    (key) => key,
    (key) => `Bearer ${key}!`,
    (key) => new Error(`refused ${key}`, { cause: new Error(key) }),
    (key) => Object.assign(new Error('x'), { rawHeaders: ['X-API-Key', key] }),
    (key) => new Map([['k', key]]),
    (key) => new Set([key]),
    (key) => new URL(`https://host.example/?k=${encodeURIComponent(key)}`),
    (key) => ({ [key]: 1 }),
    (key) => JSON.stringify({ key }),
    (key) => inspect({ key }),
    (key) => Buffer.from(`user:${key}`).toString('base64'),
  );
  const wrapped = fc.array(
    fc.oneof(
      fc.string().map((name) => (inner: unknown) => ({ [`${name} `]: inner, n: 1 }) as unknown),
      fc.constant((inner: unknown) => [1, inner, null] as unknown),
      fc.constant((inner: unknown) => Object.assign(new Error('outer', { cause: inner })) as unknown),
      fc.constant((inner: unknown) => new Map([[inner, inner]]) as unknown),
      fc.constant((inner: unknown) => JSON.stringify(inner) ?? ''),
    ),
    { maxLength: 3 },
  );

  it('a log line holds no key after it was written as JSON and redacted', () => {
    const keys = ['old-key-0123456789abcdef', value];
    const forms = keys.flatMap((key) => {
      const bytes = Buffer.from(key);
      return [key, bytes.toString('hex'), bytes.toString('base64').slice(4, -4)];
    });
    fc.assert(
      fc.property(planted, wrapped, fc.constantFrom(...keys), (plant, wraps, secret) => {
        const object = wraps.reduce<unknown>((inner, wrap) => wrap(inner), plant(secret));
        const clean = scrubber.redact(JSON.stringify({ level: 50, err: object }, showAll));
        const plain = unescapeAll(clean);
        return !forms.some((form) => clean.includes(form) || plain.includes(form));
      }),
      { numRuns: 10_000 },
    );
  });
});

/** As pino's serialisers do, and more: errors with their causes and own properties, maps and sets by content. */
function showAll(_: string, it: unknown): unknown {
  if (it instanceof Error) {
    return { ...it, type: it.name, message: it.message, stack: it.stack, cause: it.cause };
  }
  if (it instanceof Map) return [...it];
  if (it instanceof Set) return [...it];
  return it;
}

/** Takes up to eight levels of escaping off. */
function unescapeAll(text: string): string {
  let plain = text;
  for (let level = 0; level < 8 && plain.includes('\\'); level++) plain = plain.replace(/\\(["\\/])/g, '$1');
  return plain;
}

/** What docs/key.md lists; a search that learns one of these shortens the list there. */
describe('what is not found', () => {
  const key = 'wa_key+4f8d/2c71~e0b9.a35d==';
  const bytes = [...Buffer.from(key)];
  const pairs = bytes.map((byte) => byte.toString(16).padStart(2, '0'));
  const base64 = Buffer.from(key).toString('base64');
  const found = (body: string | Buffer) =>
    scrubberOf(key).leakIn({ headers: {}, body: Buffer.from(body as string) }) !== undefined;

  it.each([
    ['base64 of base64', Buffer.from(base64).toString('base64')],
    ['base64 of UTF-16', Buffer.from(key, 'utf16le').toString('base64')],
    ['base64 with a line break', `${base64.slice(0, 20)}\n${base64.slice(20)}`],
    ['UTF-16', Buffer.from(key, 'utf16le')],
    ['\\u{…}', bytes.map((byte) => `\\u{${byte.toString(16)}}`).join('')],
    ['octal', bytes.map((byte) => `\\${byte.toString(8)}`).join('')],
    ['hexadecimal with 0x', pairs.map((pair) => `0x${pair}`).join(', ')],
    ['hexadecimal with line breaks', pairs.join('\n')],
    ['hexadecimal with colons', pairs.join(':')],
    ['as Node shows a Buffer', inspect(Buffer.from(key))],
    ['a list of bytes', bytes.join(',')],
    ['a list of bytes as JSON shows a Buffer', JSON.stringify(Buffer.from(key))],
    ['reversed', [...key].reverse().join('')],
    ['the key without its last character', key.slice(0, -1)],
    ['the key without its first character', key.slice(1)],
  ])('the search for the key does not look for: %s', (_, text) => {
    expect(found(text)).toBe(false);
  });
});

describe('a key that looks like an escape', () => {
  it.each([
    'abc%41def%2541ghi',
    'abc\\u0041def\\x42ghi',
    'abc&lt;def&#65;ghi&amp;',
    '%41%42%43%44%45%46%47%48',
    '25abcdef0123456789',
  ])('a key that looks like an escape, as %j, is found in every form, whatever stands before it', (key) => {
    const scrubber = scrubberOf(key);
    for (const [name, shape] of shapes) {
      for (const before of ['', 'x', '%', '%4', '\\', '&', '\\u00']) {
        const body = Buffer.from(`${before}${shape(key)}.`);
        // An escape that runs into the key may hide an escaped one; as it is, it is always found.
        if (name !== 'raw' && before !== '' && before !== 'x') continue;
        expect(scrubber.leakIn({ headers: {}, body }), `${before} ${name}`).toBeDefined();
      }
    }
  });
});

describe('a text that is nothing but a key', () => {
  it.each([
    ['the shortest key', '0123456789abcdef', '0123456789abcdef'],
    ['a key whose escapes were resolved', '%41%42%43%44ijklmnopqrst', 'ABCDijklmnopqrst'],
    ['a long key', `${'k'.repeat(4_095)}y`, `${'k'.repeat(4_095)}y`],
  ])('is redacted whole: %s', (_, key, text) => {
    expect(scrubberOf('a-longer-key-beside-it-0123456789', key).redact(text)).toBe(`${new Key(key, 2)}`);
  });
});

describe('a key of any length', () => {
  const random = (length: number): string =>
    Array.from({ length }, (_, at) => String.fromCharCode(0x21 + ((at * 7919 + at * at * 31) % 94))).join('');
  const lengths = [16, 64, 512, 2_100, 4_096];

  it.each(lengths)('a key of %i characters is found in every form', (length) => {
    const key = random(length);
    const scrubber = scrubberOf(key);
    for (const [name, shape] of shapes) {
      expect(
        scrubber.leakIn({ headers: {}, body: Buffer.from(`{"a":"${shape(key)}"}`) }),
        name,
      ).toBeDefined();
      expect(scrubber.redact(`a ${shape(key)} b`), name).toContain(new Key(key, 1).fingerprint);
    }
  });
});

it('no code that knows the key makes a pattern, so none is made of it', () => {
  const folder = new URL('../../src/', import.meta.url);
  const made = globSync('{key,log}/*.ts', { cwd: folder }).filter((name) =>
    /\bRegExp\(/.test(readFileSync(new URL(name, folder), 'utf8')),
  );
  expect(made).toEqual([]);
});
