import { afterEach, describe, expect, it, vi } from 'vitest';
import { Membership } from '../../src/fleet/membership.ts';
import { createSealing } from '../../src/fleet/sealing.ts';
import type { SharedStore } from '../../src/fleet/store.ts';

const sealing = createSealing(() => Buffer.alloc(32));
afterEach(() => void vi.restoreAllMocks());

describe('how many gateways share a limit', () => {
  it('stays as it was until the others had the time to say that they are there: the store was away, or its clock was set', async () => {
    let nowMs = 100_000;
    vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
    let there: readonly string[] = [];
    const facts = (id: string): Buffer => {
      const proof = sealing.sign(`gateway ${id}`, String(nowMs));
      return Buffer.from(JSON.stringify({ host: 'here', version: '0', startedAt: 0, proof }));
    };
    const store = {
      clock: { at: (ms: number) => ms },
      name: (...parts: readonly string[]) => parts.join(':'),
      run: async (_: string, _keys: unknown, _values: unknown, read: (reply: unknown) => unknown) =>
        read([there.map((id) => Buffer.from(id)), there.map(facts)]),
    } as unknown as SharedStore;
    const membership = new Membership({ store, host: 'here', version: '0', startedAt: 0 });
    const workspace = { name: '', sealing: () => ({ sealing, generation: 1 }) };
    membership.join(workspace);
    const beatAt = async (ms: number, ...ids: readonly string[]): Promise<number> => {
      [nowMs, there] = [ms, ids];
      await membership.beat();
      return membership.sharing(workspace);
    };
    const [own, other, third] = ['00000001', '00000002', '00000003'];
    expect(await beatAt(100_000, own, other, third)).toBe(3);
    // After four seconds without the store, in which all heartbeats have ended.
    expect(await beatAt(104_000, own)).toBe(3);
    expect(await beatAt(105_000, own, other)).toBe(3);
    expect(await beatAt(106_900, own, other)).toBe(3);
    expect(await beatAt(107_900, own, other)).toBe(2);
    // The store has forgotten the others for a moment.
    expect(await beatAt(108_900, own)).toBe(2);
    expect(await beatAt(109_900, own, other)).toBe(2);
    expect(await beatAt(110_900, own)).toBe(2);
    expect(await beatAt(113_800, own)).toBe(2);
    expect(await beatAt(113_900, own)).toBe(1);
  });
});
