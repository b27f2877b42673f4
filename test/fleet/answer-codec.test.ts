import { describe, expect, it } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { outcomeKeptMs, readOutcome, type StoredForm, writeOutcome } from '../../src/fleet/answer-codec.ts';
import { createSealing } from '../../src/fleet/sealing.ts';

const sealing = createSealing((purpose) => Buffer.alloc(32, purpose));
/** @param agoMs how much later than it was written this is read, by the store's clock */
const form = (agoMs = 0): StoredForm => ({
  ...{ name: 'read', sealing, generation: 1 },
  clock: { at: (ms) => ms, local: (ms) => ms - agoMs },
});
const failed = { kind: 'failed', error: new GatewayError('upstream-timeout', { reason: 'slow' }) } as const;

describe('an outcome of another gateway', () => {
  const sealed = (): Buffer =>
    writeOutcome(form(), 'id', 'epoch', { kind: 'outcome', outcome: failed, replaces: false }) as Buffer;

  it.each<[string, string, number, string, string | undefined]>([
    ['is used by those that wait for it', 'id', 0, 'epoch', 'failed'],
    ['is used as long as it is kept', 'id', outcomeKeptMs, 'epoch', 'failed'],
    ['is none later, whatever the store says of its age', 'id', outcomeKeptMs + 1_000, 'epoch', undefined],
    ['is none from before a purge', 'id', 0, 'a later one', undefined],
    ['is none under the id of another exchange', 'other', 0, 'epoch', undefined],
  ])('an outcome of another gateway %s', (_, id, agoMs, known, kind) => {
    const isCurrent = (epoch: unknown): boolean => epoch === known;
    expect(readOutcome(form(agoMs), id, sealed(), undefined, isCurrent)?.kind).toBe(kind);
  });
});
