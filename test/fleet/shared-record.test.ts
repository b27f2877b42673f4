import { describe, expect, it } from 'vitest';
import { parseMessage } from '../../src/fleet/gate-messages.ts';
import {
  isStale,
  parseRecord,
  readRecord,
  type SharedRecord,
  scaleRecord,
  withCooldown,
  writeRecord,
} from '../../src/fleet/shared-record.ts';
import { type GateRecord, openRecord } from '../../src/gate/pacer.ts';

const paced: GateRecord = {
  ...openRecord,
  ...{ state: 'paced', perMs: 0.05, isMeasured: true, crowd: 12, crowdMs: 40, unstatedMs: 80 },
  ...{ level: 2.5, levelMs: 900, exploreMs: 6_000, exploreIntervalMs: 5_000 },
  marks: [{ atMs: 500, sent: 10 }],
};
const plain: SharedRecord = writeRecord(paced, 20, 1_000);

describe('the record of the gate', () => {
  it('the record of the gate, read by a gateway with another clock, is the one that was written, at the start of a new stretch', () => {
    const read = readRecord(JSON.parse(JSON.stringify(plain)), 700, 50_000, 50_000);
    expect(read).toMatchObject({ state: 'paced', perMs: 0.05, isMeasured: true, crowd: 12, level: 2.5 });
    expect(read.exploreMs).toBe(55_000);
    expect(read.levelMs - 50_000).toBe(paced.levelMs - 1_000);
    expect(read.marks).toEqual([{ atMs: 50_000, sent: 700 }]);
  });

  it('the record of a closing keeps what is left of it, and what the 429s tell', () => {
    const closed: GateRecord = {
      ...paced,
      ...{ state: 'closed', closedUntilMs: 3_000, statedUntilMs: 2_500, throttled: 1, closedMs: 1_000 },
      lastThrottled: { atMs: 990, sent: 19 },
      wasProvoked: true,
    };
    const read = readRecord(writeRecord(closed, 20, 1_000), 0, 10_000, 10_100);
    expect(read).toMatchObject({
      state: 'closed',
      closedUntilMs: 12_000,
      statedUntilMs: 11_500,
      throttled: 0,
    });
  });

  it('the record of a gateway that works by itself has its share of the rate', () => {
    expect(scaleRecord(paced, 1 / 4)).toMatchObject({ perMs: 0.05 / 4, crowd: 3, level: 2.5 / 4 });
  });

  it('the record of the gate is closed for as long as this gateway itself was told to wait', () => {
    const own = { ...paced, closedUntilMs: 4_000, statedUntilMs: 4_000 };
    expect(withCooldown(paced, own, 1_000)).toMatchObject({ state: 'closed', closedUntilMs: 4_000 });
    expect(withCooldown(paced, own, 5_000)).toMatchObject({ state: 'paced', statedUntilMs: 4_000 });
    const longer = { closedUntilMs: 9_000, statedUntilMs: 9_000 };
    expect(withCooldown({ ...paced, ...longer }, own, 1_000)).toMatchObject(longer);
  });

  it('the record of the gate is of no use a minute after its closing', () => {
    expect(isStale({ ...plain, closedForMs: 5_000 }, 64_000)).toBe(false);
    expect(isStale({ ...plain, closedForMs: 5_000 }, 66_000)).toBe(true);
    expect(isStale(plain, Number.NaN)).toBe(true);
  });

  it.each([
    ['nothing', null],
    ['a rate of none', { ...plain, perMs: 0 }],
    ['a rate that is no number', { ...plain, perMs: '0.05' }],
    ['a rate without an end', { ...plain, perMs: Number.POSITIVE_INFINITY }],
    ['a closing of a year', { ...plain, closedForMs: 3e10 }],
    ['a closing in the past', { ...plain, closedForMs: -1 }],
    ['a level that is no number', { ...plain, level: Number.NaN }],
    ['another state', { ...plain, state: 'ajar' }],
    ['a missing number', { ...plain, crowd: undefined }],
  ])('a record of the gate with %s is refused', (_, value) => {
    expect(parseRecord(value)).toBeUndefined();
  });

  it.each(['open', 'closed', 'half-open', 'paced'])('a record of a gate that is %s is read', (state) => {
    expect(parseRecord({ ...plain, state })).toEqual({ ...plain, state });
  });

  it('the longest wait that an upstream may state, 31 days, is heard of by the other gateways', () => {
    const statedForMs = 31 * 86_400_000;
    expect(parseRecord({ ...plain, statedForMs })).toMatchObject({ statedForMs });
    const report = {
      ...{ kind: 'report', term: 1, from: 'a', to: 'b', number: 1, seen: 0, isFull: false, sentBefore: 0 },
      ...{ waiting: [], inFlight: [], ended: [[1, { waitMs: statedForMs }]] },
      throttled: [['["c",1,false]', 5, statedForMs]],
    };
    expect(parseMessage(JSON.stringify(report))).toMatchObject(report);
  });

  it('the record of the gate leaves out what it does not know', () => {
    expect(parseRecord({ ...plain, marks: 'many' })).toEqual(plain);
  });
});

describe('the windows of a told limit as another gateway wrote them', () => {
  const windows = { ended: [[[60_000, 3]], []], inFlight: 2 };

  it('the windows of a told limit as another gateway wrote them are read where they are numbers in range, else left out', () => {
    expect(parseRecord({ ...plain, windows })).toEqual({ ...plain, windows });
    for (const wrong of [
      'many',
      { ...windows, inFlight: -1 },
      { ...windows, inFlight: '2' },
      { ...windows, ended: [[[60_000, Number.NaN]]] },
      { ...windows, ended: [[[1e12, 3]]] },
      { ...windows, ended: [[[60_000]]] },
      { ...windows, ended: [Array(1_000).fill([60_000, 1])] },
      { ...windows, ended: Array(100).fill([]) },
    ]) {
      expect(parseRecord({ ...plain, windows: wrong })).toEqual(plain);
    }
  });
});
