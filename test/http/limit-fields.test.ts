import { describe, expect, it } from 'vitest';
import { LimitFields } from '../../src/http/limit-fields.ts';
import { statedLimits } from '../../src/http/stated-wait.ts';

const limit = (remaining: number, resetMs: number) => [{ name: 'ratelimit', remaining, resetMs }];

/** One attempt after the other, each second one: what was left in their answers, of a window that ends after a minute. */
function heard(left: readonly number[], resetMs = (atMs: number) => 60_000 - atMs) {
  const fields = new LimitFields(0, 600_000);
  const ignored = left.flatMap((remaining, at) =>
    fields.heard(limit(remaining, resetMs(at * 1_000)), at * 1_000 - 10, at * 1_000),
  );
  return { fields, ignored };
}

describe('fields that tell what is left', () => {
  it('fields that tell what is left close at nothing left until their reset, once they have behaved', () => {
    const { fields, ignored } = heard([5, 4, 3, 2, 1, 0]);
    expect(ignored).toEqual([]);
    expect(fields.turnMs(0, 5_100)).toBe(60_000);
    expect(fields.turnMs(0, 60_000)).toBe(60_000);
    // Too few answers to believe them.
    expect(heard([3, 2, 1, 0]).fields.turnMs(0, 5_100)).toBe(5_100);
  });

  it('fields that tell what is left are a ceiling for what is in flight and ahead', () => {
    const { fields } = heard([9, 8, 7, 6, 5, 4]);
    expect(fields.turnMs(3, 5_100)).toBe(5_100);
    expect(fields.turnMs(4, 5_100)).toBe(60_000);
    // A window that begins holds what the one before held.
    expect(fields.turnMs(8, 60_000)).toBe(60_000);
    expect(fields.turnMs(9, 60_000)).toBeGreaterThan(60_000);
    fields.heard(limit(2, 60_000), 60_100, 60_200);
    expect(fields.turnMs(2, 60_300)).toBe(120_200);
  });

  it('fields that tell what is left may come in another order than they were written', () => {
    const fields = new LimitFields(0, 600_000);
    for (const [at, remaining] of [9, 6, 8, 7, 3, 5, 4, 0, 2, 1].entries())
      expect(fields.heard(limit(remaining, 60_000 - at), -5, at)).toEqual([]);
    for (const [at, remaining] of [-1, -2, -3, -4, -5].entries())
      fields.heard(limit(remaining, 59_000 - at * 10), 990 + at * 10, 1_000 + at * 10);
    expect(fields.turnMs(0, 2_000)).toBe(60_000);
  });

  it('fields that tell what is left hold one attempt no longer than a bound, and its answer may contradict them', () => {
    const day = 86_400_000;
    const { fields } = heard([5, 4, 3, 2, 1, 0], (atMs) => 30 * day - atMs);
    expect(fields.turnMs(0, 5_100)).toBe(605_000);
    expect(fields.turnMs(0, 605_000)).toBe(605_000);
    // No second one beside it, nor after it where it agrees.
    expect(fields.turnMs(1, 605_000)).toBe(30 * day);
    fields.heard(limit(0, 30 * day - 606_000), 4_000, 606_000);
    expect(fields.turnMs(0, 606_100)).toBe(1_206_000);
    expect(fields.heard(limit(99, 60_000), 1_206_000, 1_206_100)).toEqual(['ratelimit']);
    expect(fields.turnMs(9, 1_206_200)).toBe(1_206_200);
  });

  it('fields that tell what is left belong to a window that is over where they were sent in it', () => {
    const { fields } = heard([5, 4, 3, 2, 1, 0]);
    fields.heard(limit(9, 60_000), 59_900, 60_000);
    expect(fields.heard(limit(0, 0), 59_000, 60_100)).toEqual([]);
    expect(fields.heard(limit(0, 0), 60_050, 60_100)).toEqual(['ratelimit']);
  });

  it('of fields that tell what is left the last part goes evenly until the reset', () => {
    const fields = new LimitFields(0.25, 600_000);
    for (let at = 0; at <= 30; at += 1) fields.heard(limit(40 - at, 40_000 - at), at - 1, at);
    expect(fields.turnMs(0, 100)).toBeCloseTo(4_000, -2);
    expect(fields.turnMs(9, 100)).toBe(40_000);
  });

  it('of a window that began later, too, the last part goes evenly until the reset', () => {
    const fields = new LimitFields(0.25, 600_000);
    for (let at = 0; at <= 30; at += 1)
      fields.heard(limit(40 - at, 40_000 - at), 7_000_000 + at - 1, 7_000_000 + at);
    expect(fields.turnMs(0, 7_000_100)).toBeCloseTo(7_004_000, -2);
  });

  it('what was sent before any answer came says nothing of whether fields behave', () => {
    const fields = new LimitFields(0, 600_000);
    for (const [at, remaining] of [9, 8, 7, 6, 5, 4, 3, 0].entries()) {
      expect(fields.heard(limit(remaining, 60_000 - at), -1, at)).toEqual([]);
    }
    expect(fields.turnMs(0, 100)).toBe(100);
  });

  it('what was sent as an answer came has less left than that answer', () => {
    const fields = new LimitFields(0, 600_000);
    expect(fields.heard(limit(9, 60_000), -10, 0)).toEqual([]);
    expect(fields.heard(limit(9, 59_990), 0, 10)).toEqual(['ratelimit']);
  });

  it('a reset that is rounded may move by 1.5 s, and the latest of what was said counts', () => {
    const { fields } = heard([9, 8, 7, 6, 5, 4]);
    expect(fields.heard(limit(3, 55_500), 5_950, 6_000)).toEqual([]);
    expect(fields.heard(limit(0, 51_500), 6_950, 7_000)).toEqual([]);
    expect(fields.turnMs(0, 7_100)).toBe(61_500);
    for (const outside of [55_501, 52_499 - 2_000]) {
      const other = heard([9, 8, 7, 6, 5, 4]).fields;
      expect(other.heard(limit(3, outside), 5_950, 6_000)).toEqual(['ratelimit']);
    }
  });

  it('a new window may begin 1.5 s before the reset, and belongs to what is sent from then on', () => {
    const { fields } = heard([5, 4, 3, 2, 1, 0]);
    expect(fields.heard(limit(9, 60_000), 58_400, 58_500)).toEqual([]);
    expect(fields.heard(limit(0, 1_000), 58_499, 58_600)).toEqual([]);
    expect(fields.heard(limit(0, 1_000), 58_500, 58_600)).toEqual(['ratelimit']);
    expect(heard([5, 4, 3, 2, 1, 0]).fields.heard(limit(9, 60_000), 58_400, 58_499)).toEqual(['ratelimit']);
  });

  it.each<[string, readonly number[], ((atMs: number) => number)?]>([
    ['are always the same', [9, 9, 9, 9, 9, 9, 9]],
    ['are of each path', [90, 40, 89, 39, 88, 38, 87, 37]],
    ['count others and not us', [30, 28, 28, 27, 25, 25, 25]],
    ['have a reset that runs ahead', [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], () => 60_000],
    ['say that nothing is left, and go on', [3, 2, 1, 0, 0, 0, 0, 0]],
  ])('fields that %s are ignored, and that is said once', (_, left, resetMs) => {
    const { fields, ignored } = heard(left, resetMs);
    expect(ignored).toEqual(['ratelimit']);
    expect(fields.turnMs(0, 30_000)).toBe(30_000);
  });

  it('fields that were found out are believed again, once they have behaved for longer', () => {
    const fall = (from: number) => Array.from({ length: from + 1 }, (_one, at) => from - at);
    expect(heard([99, 99, ...fall(50)], (atMs) => 90_000 - atMs).fields.turnMs(0, 53_000)).toBe(53_000);
    expect(heard([99, 99, ...fall(85)], (atMs) => 90_000 - atMs).fields.turnMs(0, 88_000)).toBe(90_000);
  });
});

describe('what an answer states of a limit', () => {
  const of = (status: number, headers: Record<string, string>, added: readonly string[] = []) =>
    statedLimits({ status, headers, receivedAt: Date.parse('2026-11-22T15:00:00Z') }, added);

  it.each<[Record<string, string>, readonly object[]]>([
    [{ 'x-ratelimit-remaining': '9', 'x-ratelimit-reset': '30' }, [['x-ratelimit-reset', 9, 30_000]]],
    [
      { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset-after': '1.5' },
      [['x-ratelimit-reset-after', 0, 1_500]],
    ],
    [
      { 'x-rate-limit-remaining': '7', 'x-rate-limit-reset': '1795359630' },
      [['x-rate-limit-reset', 7, 30_000]],
    ],
    [{ 'ratelimit-remaining': '9', 'ratelimit-reset': '30' }, [['ratelimit-reset', 9, 30_000]]],
    [{ ratelimit: 'limit=10, remaining=9, reset=30' }, [['ratelimit', 9, 30_000]]],
    [
      { ratelimit: '"burst";r=3;t=1, "day";r=900;t=3600' },
      [
        ['ratelimit 1', 3, 1_000],
        ['ratelimit 2', 900, 3_600_000],
      ],
    ],
    [
      { 'x-ratelimit-remaining-reads': '4', 'x-ratelimit-reset-reads': '6ms' },
      [['x-ratelimit-reset-reads', 4, 6]],
    ],
    [
      { ratelimit: ';r=1;t=1,'.repeat(1_000) },
      Array.from({ length: 16 }, (_, at) => [`ratelimit ${at + 1}`, 1, 1_000]),
    ],
    [{ 'x-ratelimit-remaining': '9', 'x-ratelimit-reset': '0' }, [['x-ratelimit-reset', 9, 0]]],
    [{ 'x-ratelimit-remaining-reads': '4', 'x-ratelimit-reset-reads': 'x6ms' }, []],
    [{ 'x-ratelimit-remaining-reads': '4', 'x-ratelimit-reset-reads': '6msx' }, []],
    [{ 'x-ratelimit-remaining': '9' }, []],
    [{ 'x-ratelimit-reset': '30' }, []],
    [{ 'x-ratelimit-remaining': 'many', 'x-ratelimit-reset': '30' }, []],
    [{ 'x-ratelimit-remaining': '9', 'x-ratelimit-reset': 'soon' }, []],
    [{ 'x-ratelimit-remaining': '9', 'x-ratelimit-reset': '99999999' }, []],
    [{ 'retry-after': '30' }, []],
  ])('what an answer states of a limit: %j', (headers, expected) => {
    const limits = of(200, headers, ['x-ratelimit-reset-reads']);
    expect(limits.map(({ name, remaining, resetMs }) => [name, remaining, resetMs])).toEqual(expected);
  });

  it('a cached answer and a refusal state nothing of what is left', () => {
    const headers = { 'x-ratelimit-remaining': '9', 'x-ratelimit-reset': '30' };
    expect(of(304, headers)).toHaveLength(1);
    expect(of(200, { ...headers, age: '0' })).toEqual([]);
    expect(of(200, { ...headers, 'cache-status': 'edge; fwd=miss, shield; hit; ttl=3' })).toEqual([]);
    expect(of(200, { ...headers, 'cache-status': 'edge; fwd=miss' })).toHaveLength(1);
    expect(of(200, { ...headers, 'cache-status': 'edge;HIT' })).toEqual([]);
    expect(of(400, headers)).toEqual([]);
    expect(of(429, headers)).toEqual([]);
    expect(of(503, headers)).toEqual([]);
  });
});
