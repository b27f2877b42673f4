import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AcceptedReads } from '../../src/key/key-monitor.ts';
import type { KeyringOptions } from '../../src/key/keyring.ts';
import { type Evidence, type Finding, judgeSuspicion, judgeTrial } from '../../src/key/suspicion.ts';
import {
  down,
  FakeStore,
  inUse,
  key1,
  key2,
  key3,
  keyringOf,
  readOf,
  within,
} from '../support/fake-store.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

type Says = number | undefined | Error | Promise<number>;

/** A keyring whose first key is in use, before an upstream that says what a test sets of each value. */
async function started(options: Partial<KeyringOptions> = {}) {
  const store = new FakeStore(key1);
  const { keyring, checkWith, events } = await keyringOf(store, { triesNewKeys: true, ...options });
  const says: Record<string, Says> = { [key1]: 200 };
  const asked: { at: number; path: string; generation: number }[] = [];
  const startedMs = performance.now();
  checkWith(async (key, { path }) => {
    asked.push({ at: performance.now() - startedMs, path, generation: key.generation });
    const said = Object.entries(says).find(([value]) => key.hasValue(value))?.[1] ?? 401;
    if (said instanceof Error) throw said;
    return said;
  });
  const swap = async (value: string | Error): Promise<void> => {
    store.swap(value);
    await vi.advanceTimersByTimeAsync(0);
  };
  const kinds = () => events.map(({ kind }) => kind);
  return { store, keyring, checkWith, events, says, asked, swap, kinds };
}

describe('a new key, while the one in use is accepted', () => {
  it.each([200, 304, 403])(
    'a new key is taken into use when the upstream answers %i to one read of its own',
    async (status) => {
      const { keyring, says, asked, events, swap } = await started();
      says[key2] = status;
      await swap(key2);
      expect(inUse(keyring).hasValue(key2)).toBe(true);
      expect(asked).toEqual([{ at: 0, path: '/users/api-keys/', generation: 2 }]);
      expect(events.slice(1)).toMatchObject([
        { kind: 'rotated', level: 'info', generation: 2 },
        { kind: 'accepted', level: 'info', generation: 2 },
      ]);
      expect(keyring.health()).toMatchObject({ generation: 2, newKey: null, fallenBack: false });
      // What was in use before is searched for a while, and then forgotten.
      await vi.advanceTimersByTimeAsync(11 * 60_000);
      expect(keyring.scrub.redact(key1)).toBe(key1);
    },
  );

  it('a new key is not used where the upstream answers 401: the key in use stays, and the health says so', async () => {
    const { keyring, swap, events } = await started();
    await swap(key2);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(inUse(keyring).hasValue(key1)).toBe(true);
    expect(keyring.usable).toBe(keyring.current);
    expect(keyring.generation()).toBe(1);
    expect(keyring.health()).toMatchObject({
      generation: 1,
      beside: { suspect: false },
      ...{ rejected: false, fallenBack: false },
      newKey: { generation: 2, standing: 'refused' },
    });
    expect(events.slice(1)).toMatchObject([
      { kind: 'rotated', generation: 2 },
      { kind: 'new-key-refused', level: 'error', generation: 2 },
    ]);
    // It may be in an answer to its trial.
    expect(keyring.scrub.redact(key2)).not.toBe(key2);
  });

  it('a new key is tried again at growing intervals, at most every minute, and used once it is accepted', async () => {
    const { keyring, says, asked, swap, kinds } = await started();
    await swap(key2);
    await vi.advanceTimersByTimeAsync(200_000);
    expect(asked.map(({ at }) => at / 1_000)).toEqual([0, 1, 3, 7, 15, 31, 63, 123, 183]);
    says[key2] = 200;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
    expect(kinds()).toEqual(['loaded', 'rotated', 'new-key-refused', 'accepted']);
    await vi.advanceTimersByTimeAsync(600_000);
    expect(asked).toHaveLength(10);
  });

  it.each<[string, Says, RegExp]>([
    ['429', 429, /answered 429/],
    ['500', 500, /answered 500/],
    ['404', 404, /answered 404/],
    ['nothing', new Error('unreachable'), /gave no answer/],
    ['nothing for 15 s', new Promise<number>(() => {}), /gave no answer/],
  ])('a new key is not judged by %s: it is tried until something is known', async (_name, said, reason) => {
    const { keyring, says, swap, events } = await started();
    says[key2] = said;
    await swap(key2);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(inUse(keyring).hasValue(key1)).toBe(true);
    expect(keyring.health().newKey).toMatchObject({ standing: 'untried' });
    expect(events.slice(1)).toMatchObject([
      { kind: 'rotated' },
      { kind: 'new-key-untried', level: 'warn', reason: expect.stringMatching(reason) },
    ]);
    says[key2] = 200;
    await vi.advanceTimersByTimeAsync(80_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
    expect(events.at(-1)).toMatchObject({ kind: 'accepted' });
  });

  it('a new key is accepted by the other read of the specification where the one that confirms keys does not work', async () => {
    const { keyring, checkWith, asked, swap } = await started();
    checkWith(async (_key, { path }) => {
      asked.push({ at: 0, path, generation: 0 });
      return path === '/users/api-keys/' ? 404 : 200;
    });
    await swap(key2);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
    expect(asked.map(({ path }) => path)).toEqual(['/users/api-keys/', '/analytics/accounts/']);
  });

  it('a new key is tried again at once on SIGHUP', async () => {
    const { keyring, says, swap } = await started();
    await swap(key2);
    await vi.advanceTimersByTimeAsync(125_000);
    says[key2] = 200;
    await keyring.reload();
    await vi.advanceTimersByTimeAsync(0);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
  });

  it('a new key gives way to the next one that the store gives', async () => {
    const { keyring, says, asked, swap, kinds } = await started();
    let answer: (status: number) => void = () => {};
    says[key2] = new Promise((resolve) => {
      answer = resolve;
    });
    says[key3] = 200;
    await swap(key2);
    await swap(key3);
    expect(inUse(keyring).hasValue(key3)).toBe(true);
    // The answer to the one before is of no interest.
    answer(200);
    await vi.advanceTimersByTimeAsync(120_000);
    expect(inUse(keyring).hasValue(key3)).toBe(true);
    expect(asked).toHaveLength(2);
    expect(kinds()).toEqual(['loaded', 'rotated', 'rotated', 'accepted']);
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect(keyring.scrub.redact(key2)).toBe(key2);
  });

  it('a new key is dropped where the store goes back to the key in use', async () => {
    const { keyring, asked, swap, events } = await started();
    await swap(key2);
    await swap(key1);
    expect(keyring.generation()).toBe(1);
    expect(keyring.health()).toMatchObject({ newKey: null, fallenBack: false });
    expect(events.at(-1)).toMatchObject({ kind: 'went-back', generation: 1 });
    await vi.advanceTimersByTimeAsync(600_000);
    expect(asked).toHaveLength(1);
  });

  it('a new key stays on trial while the store fails', async () => {
    const { keyring, says, swap } = await started();
    await swap(key2);
    await swap(down);
    says[key2] = 200;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
  });

  it('a new key is used at once, and confirmed by the first answer, where new keys are not tried', async () => {
    const { keyring, asked, swap, kinds } = await started({ triesNewKeys: false });
    await swap(key2);
    const key = inUse(keyring);
    expect(key.hasValue(key2)).toBe(true);
    expect(kinds()).toEqual(['loaded', 'rotated']);
    keyring.accepted(key, 500, performance.now(), readOf('list-accounts'));
    expect(kinds()).toEqual(['loaded', 'rotated']);
    for (let answers = 0; answers < 2; answers++)
      keyring.accepted(key, 200, performance.now(), readOf('list-accounts'));
    expect(kinds()).toEqual(['loaded', 'rotated', 'accepted']);
    expect(asked).toEqual([]);
  });
});

describe('a new key, once the one in use is refused', () => {
  it('a new key replaces it at once while it is untried, and is confirmed by the first answer', async () => {
    const { keyring, says, swap, kinds, asked } = await started();
    says[key2] = 503;
    await swap(key2);
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    const next = await keyring.replace(old, within(25_000));
    expect(next?.hasValue(key2)).toBe(true);
    expect(keyring.usable).toBe(next);
    expect(keyring.health()).toMatchObject({ beside: { suspect: false }, newKey: null });
    keyring.accepted(inUse(keyring), 200, performance.now(), readOf('list-accounts'));
    expect(kinds()).toEqual(['loaded', 'rotated', 'new-key-untried', 'accepted']);
    await vi.advanceTimersByTimeAsync(120_000);
    // Nothing was asked with the old one, and the new one is on trial no more.
    expect(asked.map(({ generation }) => generation)).toEqual([2]);
  });

  it('a new key is used at once where the store gives it only then', async () => {
    const { keyring, store, kinds, asked } = await started();
    const old = inUse(keyring);
    store.value = key2;
    keyring.refused(old, readOf('list-accounts'));
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(0);
    expect((await replaced)?.hasValue(key2)).toBe(true);
    expect(kinds()).toEqual(['loaded', 'rotated']);
    expect(asked).toEqual([]);
  });

  it('a new key is tried again at once where it was refused before, and requests that wait get it', async () => {
    const { keyring, says, swap, kinds } = await started();
    await swap(key2);
    await vi.advanceTimersByTimeAsync(125_000);
    Object.assign(says, { [key1]: 401, [key2]: 200 });
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(0);
    expect((await replaced)?.hasValue(key2)).toBe(true);
    expect(kinds()).toEqual(['loaded', 'rotated', 'new-key-refused', 'accepted']);
  });

  it('a new key does not replace it where it is refused and the 401 was about one operation', async () => {
    const { keyring, swap, kinds } = await started();
    await swap(key2);
    const old = inUse(keyring);
    keyring.refused(old, readOf('/odd/'));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(keyring.current).toBe(old);
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(kinds()).toEqual(['loaded', 'rotated', 'new-key-refused', 'operation-refused']);
  });

  it('a new key ends the rejection of both when it is accepted', async () => {
    const { keyring, says, swap, kinds } = await started();
    await swap(key2);
    await vi.advanceTimersByTimeAsync(200_000);
    says[key1] = 401;
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(3_000);
    expect(keyring.health()).toMatchObject({ rejected: true, newKey: { standing: 'refused' } });
    says[key2] = 200;
    await vi.advanceTimersByTimeAsync(8_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
    expect(keyring.health()).toMatchObject({ rejected: false, newKey: null });
    expect(kinds()).toEqual(['loaded', 'rotated', 'new-key-refused', 'rejected', 'accepted']);
  });

  it('a new key is tried while the previous key is in use, which stays until then', async () => {
    const { keyring, store, says, swap, kinds } = await started();
    store.previous = key3;
    Object.assign(says, { [key1]: 401, [key3]: 200 });
    keyring.refused(inUse(keyring), readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(2_000);
    const previous = await keyring.replace(inUse(keyring), within(25_000));
    if (previous === undefined) throw new Error('nothing to fall back to');
    keyring.accepted(previous, 200, performance.now(), readOf('list-accounts'));
    await swap(key2);
    expect(keyring.current).toBe(previous);
    expect(keyring.health()).toMatchObject({ fallenBack: true, newKey: { standing: 'refused' } });
    says[key2] = 200;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(inUse(keyring).hasValue(key2)).toBe(true);
    expect(keyring.health()).toMatchObject({ fallenBack: false, newKey: null });
    expect(kinds().slice(1)).toEqual(['fell-back', 'rotated', 'new-key-refused', 'accepted']);
  });
});

it.each([
  [200, 'accepted'],
  [204, 'accepted'],
  [304, 'accepted'],
  [403, 'accepted'],
  [401, 'refused'],
  [400, 'unknown'],
  [404, 'unknown'],
  [407, 'unknown'],
  [429, 'unknown'],
  [302, 'unknown'],
  [500, 'unknown'],
  [503, 'unknown'],
  [undefined, 'unknown'],
] as const)('the answer %s to a new key says: %s', (status, finding) => {
  expect(judgeTrial(status)).toBe(finding);
});

const odd = readOf('odd');
const refusals = (...operations: string[]) => new Map(operations.map((name) => [name, readOf(name)]));
const nothing: Evidence = {
  refused: refusals('odd'),
  ...{ proof: undefined, isRepeated: false, isAsked: false, isDue: false },
};
const asked = { ...nothing, isAsked: true, isDue: true };

it.each<[what: string, evidence: Evidence, accepted: string[], alone: Finding, withOther: Finding]>([
  ['the wait for a rotation is not over', { ...asked, proof: odd, isDue: false }, [], 'wait', 'wait'],
  ['probes are under way', { ...asked, isAsked: false }, [], 'wait', 'wait'],
  ['probes prove nothing', asked, [], 'leave', 'leave'],
  ['the same operation was refused once more', { ...asked, isRepeated: true }, [], 'leave', 'try-other'],
  ['… and another was accepted before', { ...asked, isRepeated: true }, ['x'], 'leave', 'leave'],
  ['a probe of another operation was refused', { ...asked, proof: odd }, [], 'reject', 'try-other'],
  [
    '… and a read of the specification was accepted before',
    { ...asked, proof: odd },
    ['list-accounts'],
    'leave',
    'leave',
  ],
  ['… and the other probes are under way', { ...asked, proof: odd, isAsked: false }, [], 'wait', 'wait'],
  ['two operations were refused', { ...asked, refused: refusals('a', 'b') }, [], 'reject', 'try-other'],
  ['… and a third was accepted before', { ...asked, refused: refusals('a', 'b') }, ['c'], 'leave', 'leave'],
])('of a refused key follows, where %s', (_what, evidence, operations, alone, withOther) => {
  const accepted = new AcceptedReads();
  for (const operation of operations) accepted.remember(readOf(operation), 1);
  expect(judgeSuspicion(evidence, accepted, false)).toBe(alone);
  expect(judgeSuspicion(evidence, accepted, true)).toBe(withOther);
});
