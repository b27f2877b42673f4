/**
 * The time of the search tells nothing of the key, and is in proportion to the text: counted in steps of the code, for
 * texts of equal length that have nothing, something and almost all in common with the key.
 */
import type { randomFillSync } from 'node:crypto';
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';
import { afterAll, describe, expect, it, vi } from 'vitest';
import type { Parts } from '../../src/gateway/parts.ts';

/**
 * Counts what code does, where its time is a promise: how often each of its blocks runs, by V8's own count. A clock would
 * depend on the machine, and a counter in the code would count what its author thought of.
 */
interface StepCounter {
  /** The steps that the code took during a call, the promise that it returns included. */
  stepsOf(run: () => unknown): Promise<number>;
  close(): void;
}

/**
 * Begins to count. What is counted has to be imported after this: V8 counts blocks of code that is compiled from now on.
 *
 * @param files matches the paths of those whose steps count
 */
async function countSteps(files: RegExp): Promise<StepCounter> {
  // Optimised code leaves out counts of what it need not do.
  for (const flag of ['--no-opt', '--no-maglev']) setFlagsFromString(flag);
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  /** Of all blocks, since the last call. */
  const taken = async (): Promise<number> => {
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const counts = result
      .filter(({ url }) => files.test(url))
      .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges.map(({ count }) => count)));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  return {
    async stepsOf(run) {
      await taken();
      await run();
      return taken();
    },
    close() {
      session.disconnect();
      for (const flag of ['--opt', '--maglev']) setFlagsFromString(flag);
    },
  };
}

/** What is drawn instead of random numbers, where a test says so. Else they follow from a seed: no chance, the same steps. */
const drawn = vi.hoisted(() => ({ number: undefined as number | undefined, times: 0 }));
/** How often bytes were compared in constant time. */
const compared = vi.hoisted(() => ({ times: 0 }));
vi.mock('node:crypto', async (original) => {
  const crypto = await original<typeof import('node:crypto')>();
  const { randomFrom } = await import('../support/random.ts');
  const random = randomFrom(1);
  return {
    ...crypto,
    timingSafeEqual(one: Uint8Array, other: Uint8Array) {
      compared.times++;
      return crypto.timingSafeEqual(one, other);
    },
    randomFillSync: ((numbers: Int32Array) => {
      drawn.times++;
      const { number } = drawn;
      for (const at of numbers.keys()) numbers[at] = number ?? random() * 2 ** 32;
      return numbers;
    }) as typeof randomFillSync,
  };
});

const counter = await countSteps(/\/src\/(?:key\/s|gateway-parts)/);
afterAll(() => counter.close());
const { Scrubber } = await import('../../src/key/scrub.ts');
const { Key } = await import('../../src/key/key.ts');
const { isSecret } = await import('../../src/gateway/parts.ts');

/** Random letters and digits, and none that occurs twice in the part that is compared: so no text has more in common by chance. */
const key = 'wak_Qz7Xw2Lk9vRb3Tn5Hd8Jf4Gm6Pc1';
/** As long, and with other bytes at each place, in each form. */
const stranger = 'HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH';

const forms: Readonly<Record<string, (text: string) => string>> = {
  'as it is': (text) => text,
  'in base64': (text) => Buffer.from(text).toString('base64').slice(0, 42),
  'in base64, one byte later': (text) => Buffer.from(`x${text}`).toString('base64').slice(2, 44),
  'in base64, two bytes later': (text) => Buffer.from(`xx${text}`).toString('base64').slice(3, 45),
  'in base64url': (text) => Buffer.from(text).toString('base64url').slice(0, 42),
  'in hexadecimal': (text) => Buffer.from(text).toString('hex'),
};

const escapesOf = (text: string, written: (code: string) => string): string =>
  [...Buffer.from(text)].map((byte) => written(byte.toString(16).padStart(2, '0'))).join('');

const readings: Readonly<Record<string, (text: string) => string>> = {
  'as it is': (text) => text,
  'percent-encoded': (text) => escapesOf(text, (code) => `%${code}`),
  'percent-encoded twice': (text) => escapesOf(text, (code) => `%25${code}`),
  'percent-encoded five times': (text) => escapesOf(text, (code) => `%25252525${code}`),
  'as JSON escapes': (text) => escapesOf(text, (code) => `\\u00${code}`),
  'as JSON escapes in JSON': (text) => escapesOf(text, (code) => `\\\\u00${code}`),
  'as HTML references': (text) => escapesOf(text, (code) => `&#x${code};`),
  'as percent-encoded JSON escapes': (text) => escapesOf(text, (code) => `%5Cu00${code}`),
};

function scrubberOf(...values: string[]) {
  const scrubber = new Scrubber();
  for (const [at, value] of values.entries()) scrubber.know(new Key(value, at + 1));
  return scrubber;
}

/** Texts of equal length, each of which has so many of a form's bytes, from its beginning or up to its end. */
function textsLike(form: string, other: string): Record<string, string> {
  const { length } = form;
  const sharing = (count: number): string[] => [
    form.slice(0, count) + other.slice(count),
    other.slice(0, length - count) + form.slice(length - count),
  ];
  const counts = { none: 0, one: 1, half: length >> 1, 'all but one': length - 1 };
  return Object.fromEntries(
    // Sixteen bytes of the end and more are compared, in constant time: a sender of these knows the end of the key.
    Object.entries(counts).flatMap(([name, count]) => {
      const [first = '', last = ''] = sharing(count);
      return count < 16
        ? [
            [`${name}, first`, first],
            [`${name}, last`, last],
          ]
        : [[`${name}, first`, first]];
    }),
  );
}

describe.each(Object.entries(forms))('the steps of the search for a key %s', (_, form) => {
  it.each(Object.entries(readings))(
    'the steps are the same for a text %s, whatever it has in common with the key, repeated to the limit',
    async (_name, reading) => {
      const scrubber = scrubberOf(key);
      expect(scrubber.holdsKey(reading(form(key)))).toBe(true);
      const texts = Object.entries(textsLike(form(key), form(stranger)));
      const steps: Record<string, number> = {};
      for (const [name, text] of texts) {
        const repeated = reading(text).repeat(8);
        expect(scrubber.holdsKey(repeated), name).toBe(false);
        for (const search of ['holdsKey', 'redact'] as const) {
          steps[`${search} ${name}`] = await counter.stepsOf(() => scrubber[search](repeated));
        }
        const answer = { headers: { 'x-echo': repeated }, body: repeated };
        steps[`leakIn ${name}`] = await counter.stepsOf(() => scrubber.leakIn(answer));
      }
      for (const search of ['holdsKey', 'redact', 'leakIn']) {
        const counts = Object.entries(steps).filter(([name]) => name.startsWith(search));
        expect(new Set(counts.map(([, count]) => count)).size, JSON.stringify(steps)).toBe(1);
        expect(counts[0]?.[1]).toBeGreaterThan(form(key).length * 8);
      }
    },
  );
});

it('a text with the end of a key is compared with all of it in constant time, so nothing is learned of what is before', async () => {
  const scrubber = scrubberOf(key);
  const before = key.length - 16;
  const counts = [0, 1, before >> 1, before - 1].flatMap((shared) => [
    `${key.slice(0, shared)}${stranger.slice(shared, before)}${key.slice(before)}`,
    `${stranger.slice(0, before - shared)}${key.slice(before - shared)}`,
  ]);
  const seen = new Set<string>();
  for (const text of counts) {
    expect(scrubber.holdsKey(text)).toBe(false);
    compared.times = 0;
    const steps = await counter.stepsOf(() => scrubber.holdsKey(text));
    seen.add(`${steps} steps, ${compared.times} comparisons`);
  }
  expect([...seen]).toEqual([expect.stringMatching(/ 2 comparisons$/)]);
});

it('in hexadecimal, too, sixteen characters of the end of a key are needed for a comparison: half as many could be guessed', async () => {
  const scrubber = scrubberOf(key);
  const [form, other] = [key, stranger].map((text) => Buffer.from(text).toString('hex')) as [string, string];
  const seen = new Set<string>();
  for (const shared of [0, 16, 24, 30, 31]) {
    const text = (other.slice(shared) + form.slice(form.length - shared)).repeat(8);
    compared.times = 0;
    const steps = await counter.stepsOf(() => scrubber.holdsKey(text));
    seen.add(`${steps} steps, ${compared.times} comparisons`);
  }
  expect([...seen]).toEqual([expect.stringMatching(/ 0 comparisons$/)]);
  expect(scrubber.holdsKey(form)).toBe(true);
});

/** Repeated so often, each makes some search begin again and again. */
const pieces = [
  '{"name":"an ordinary one","number":12},',
  '{"text":"a line\\n\\"and\\" another\\u2019"},',
  '115,',
  '\\',
  '%',
  '%25',
  '%2525252541',
  '%252525252525252541',
  '&',
  '&#',
  '&#0',
  '&#x0000000',
  '&a;',
  '&amp;amp;amp;',
  '\\u00',
  '\\u005c',
  '\0',
  ' ',
];

describe('the search for the key', () => {
  const keys = [key, 'C:\\temp\\key\\0123\\', `\\\\\\\\a\\\\\\\\b\\\\\\\\c`, `z${'abcd'.repeat(1_000)}`];
  const bytes = 32 * 1_024;
  const repeated = (piece: string, length: number): string =>
    piece.repeat(Math.ceil(length / piece.length)).slice(0, length);

  it.each(keys)(
    'the search takes steps in proportion to the length of any text, and few for each byte: key %#',
    async (one) => {
      const scrubber = scrubberOf(one);
      for (const piece of [
        ...pieces,
        one.slice(0, 4),
        one.slice(0, 15),
        one.slice(-15),
        one.slice(-17, -1),
      ]) {
        const [short, long] = [repeated(piece, bytes / 8), repeated(piece, bytes)];
        const steps = await counter.stepsOf(() => scrubber.holdsKey(long));
        expect(steps / (await counter.stepsOf(() => scrubber.holdsKey(short))), piece).toBeLessThan(9);
        expect(steps / bytes, piece).toBeLessThan(40);
      }
    },
  );

  it('the search skips what is too short for a key: in JSON it takes less than half the steps that it takes in a row of letters', async () => {
    const scrubber = scrubberOf(key);
    const stepsFor = (piece = '') => counter.stepsOf(() => scrubber.holdsKey(repeated(piece, bytes)));
    expect((await stepsFor(pieces[0])) / (await stepsFor('a'))).toBeLessThan(0.5);
  });

  it.each(['"', ',', ':', '{', '!', '~', '|'])(
    'the search finds a key that has a %s at any place, beside one that has none, and when that one is forgotten',
    (mark) => {
      for (const at of [0, 10, key.length - 1]) {
        const odd = `${key.slice(0, at)}${mark}${key.slice(at + 1)}`;
        const scrubber = scrubberOf(stranger);
        const other = new Key(odd, 2);
        scrubber.know(other);
        expect(scrubber.holdsKey(`{"a":"${odd}"}`)).toBe(true);
        expect(scrubber.holdsKey(`{"a":"${Buffer.from(odd).toString('hex')}"}`)).toBe(true);
        scrubber.forget(other);
        expect(scrubber.holdsKey(`{"a":"${odd}"}`)).toBe(false);
        expect(scrubber.holdsKey(`{"a":"${stranger}"}`)).toBe(true);
      }
    },
  );

  it('the search compares no more than a thousand times with a long key whose end a text repeats, and takes it as found then', async () => {
    const scrubber = scrubberOf(`z${'abcd'.repeat(1_000)}`);
    // A piece of 17 characters is no part of the key, and its first 16 are the key’s last.
    const few = repeated('abcdabcdabcdabcd!', 17 * 1_000);
    expect(scrubber.holdsKey(few)).toBe(false);
    expect(scrubber.holdsKey(`${few}${few}`)).toBe(true);
  });

  it('the search takes as many steps for one key as for the keys of a thousand workspaces', async () => {
    const text = repeated(`${pieces[0]}${pieces[1]}`, 2 * bytes);
    const one = scrubberOf(key);
    const many = scrubberOf(
      ...Array.from({ length: 1_000 }, (_, at) => `wak_${(at * 7_919 + 99_991) ** 4}-key`),
    );
    expect(await counter.stepsOf(() => many.holdsKey(text))).toBe(
      await counter.stepsOf(() => one.holdsKey(text)),
    );
  });

  it('the search of an answer of 4 MiB leaves the event loop to others sixteen times and more', async () => {
    const body = Buffer.alloc(4 * 1_024 * 1_024, pieces[0]);
    let isDone = false;
    let turns = 0;
    const turn = (): void => {
      turns++;
      if (!isDone) setImmediate(turn);
    };
    setImmediate(turn);
    expect(await scrubberOf(key).leakIn({ headers: {}, body })).toBeUndefined();
    isDone = true;
    expect(turns).toBeGreaterThanOrEqual(16);
  });

  it('the search draws another hash after other bytes had an equal one, so that nothing can be learned of a key by such bytes', () => {
    // Every text has the same hash.
    drawn.number = 1;
    const scrubber = scrubberOf(key);
    drawn.number = undefined;
    const before = drawn.times;
    expect(scrubber.holdsKey(stranger)).toBe(false);
    expect(drawn.times).toBeGreaterThan(before);
    const after = drawn.times;
    expect(scrubber.holdsKey(stranger)).toBe(false);
    expect(scrubber.holdsKey(key)).toBe(true);
    expect(drawn.times).toBe(after);
  });
});

it('what is done about a refused path does not tell whether the workspace in it exists', async () => {
  const workspaces = new Map(
    Array.from({ length: 100 }, (_, at) => [`w${at}`, { keyring: { current: new Key(key, at) } }]),
  );
  const parts = { scrub: scrubberOf(key), workspaces } as unknown as Parts;
  const stepsFor = (name: string) => counter.stepsOf(() => isSecret(parts, 'x', `/w/${name}/api/x`));
  await stepsFor('w1');
  const steps = [await stepsFor('w1'), await stepsFor('w99'), await stepsFor('x9'), await stepsFor('x99')];
  expect(new Set(steps).size, `${steps}`).toBe(1);
});
