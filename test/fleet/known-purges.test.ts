import { describe, expect, it } from 'vitest';
import { KnownPurges } from '../../src/fleet/known-purges.ts';

const idAt = (ms: number, last = '0') => `${ms}-00000000-0000-4000-8000-00000000000${last}`;
const nowMs = 10_000;
const first = idAt(1_000);
const second = idAt(2_000);

function knowing(...ids: readonly string[]): KnownPurges {
  const purges = new KnownPurges(['*', 'list']);
  for (const id of ids) purges.learn('*', id, nowMs);
  return purges;
}

describe('purges that a gateway knows', () => {
  it.each<[string, string, string, number | undefined, boolean]>([
    ['a later one', '*', idAt(3_000), nowMs, true],
    ['one of the same millisecond, in a fixed order', '*', idAt(2_000, '1'), nowMs, true],
    ['the known one', '*', second, nowMs, false],
    ['an earlier one', '*', first, nowMs, false],
    [
      'one from the future, which would make every later purge an earlier one',
      '*',
      idAt(99_000),
      nowMs,
      false,
    ],
    ['one from a future as near as clocks may differ', '*', idAt(nowMs + 200), nowMs, true],
    ['one while the time is not known', '*', idAt(3_000), undefined, false],
    ['one of a name that has none', 'other', idAt(3_000), nowMs, false],
    ['an id of another form', '*', '5000', nowMs, false],
    ['nothing', '*', '', nowMs, false],
  ])('purges that a gateway knows are followed by %s, or not', (_, what, id, now, isNew) => {
    expect(knowing(first, second).learn(what, id, now)).toBe(isNew);
  });

  it('purges that a gateway knows lie ahead once the store was set back, and are then followed by any', () => {
    const purges = knowing(idAt(9_000));
    expect(purges.learn('*', idAt(500), 600)).toBe(true);
    expect(purges.isCurrent(`${idAt(9_000)} `, 'list', 700)).toBe(false);
  });

  it.each<[string, string, boolean]>([
    ['under the last purge', `${second} `, true],
    ['under a later one, which is not known here yet', `${idAt(3_000)} `, true],
    ['under an earlier one', `${first} `, false],
    ['before any', ' ', false],
    ['under one from the future', `${idAt(99_000)} `, false],
    ['under a later one of the operation alone', ` ${idAt(3_000)}`, false],
    ['under the last, and one of the operation', `${second} ${idAt(3_000)}`, true],
    ['in the form of another version', 'a b', false],
  ])('an answer that was asked for %s is used, or not', (_, epoch, isUsed) => {
    expect(knowing(first, second).isCurrent(epoch, 'list', nowMs)).toBe(isUsed);
  });

  it('an answer that was asked for before the first purge is used while none is known, in any form alone', () => {
    expect(knowing().isCurrent(' ', 'list', nowMs)).toBe(true);
    expect(knowing().isCurrent(undefined, 'list', nowMs)).toBe(false);
  });

  it('purges that a gateway knows are written back where the store has lost them or names an earlier one', () => {
    const purges = knowing(second);
    expect(['', first, second, idAt(99_000)].map((said) => purges.missingIn('*', said))).toEqual([
      second,
      second,
      undefined,
      second,
    ]);
    expect(purges.missingIn('list', first)).toBeUndefined();
  });

  it('a purge of its own is the last that a gateway knows', () => {
    const purges = knowing(second);
    purges.made('list', first);
    expect(purges.epochOf('list')).toBe(`${second} ${first}`);
  });
});
