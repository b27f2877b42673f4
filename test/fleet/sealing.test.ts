import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSealing, type Sealing } from '../../src/fleet/sealing.ts';
import { deriveSecret, Key } from '../../src/key/key.ts';

function sealingOf(value: string, generation = 1): Sealing {
  const key = new Key(value, generation);
  return createSealing((purpose) => deriveSecret(key, purpose));
}

const ours = sealingOf('an-upstream-key-of-ours');
const name = ours.nameOf('list-accounts?page=2');
const plain = Buffer.from('{"accounts":[]}');

describe('sealing of what lies in the shared store', () => {
  it('sealing of what lies in the shared store gives back the bytes that were sealed, to every gateway with the same key', () => {
    const other = sealingOf('an-upstream-key-of-ours', 7);
    fc.assert(
      fc.property(fc.uint8Array(), fc.string(), (bytes, resource) => {
        const at = ours.nameOf(resource);
        expect(other.nameOf(resource)).toBe(at);
        expect(other.unseal(at, ours.seal(at, bytes))).toEqual(Buffer.from(bytes));
      }),
    );
  });

  it('sealing of what lies in the shared store gives nothing for an entry that was changed in any bit', () => {
    const sealed = ours.seal(name, plain);
    for (let bit = 0; bit < sealed.length * 8; bit += 1) {
      const changed = Buffer.from(sealed);
      changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(ours.unseal(name, changed)).toBeUndefined();
    }
  });

  it('sealing of what lies in the shared store gives nothing for an entry that was cut, moved to another name, or sealed with another key', () => {
    const sealed = ours.seal(name, plain);
    for (let length = 0; length < sealed.length; length += 1) {
      expect(ours.unseal(name, sealed.subarray(0, length))).toBeUndefined();
    }
    expect(ours.unseal(ours.nameOf('other'), sealed)).toBeUndefined();
    expect(sealingOf('the-key-after-a-rotation').unseal(name, sealed)).toBeUndefined();
  });

  it('sealing of what lies in the shared store shows neither names nor bytes, and the same bytes differently each time', () => {
    const sealed = ours.seal(name, plain);
    expect(name).not.toContain('accounts');
    expect(sealed.includes('accounts')).toBe(false);
    expect(ours.seal(name, plain).equals(sealed)).toBe(false);
    expect(sealingOf('another-key-of-another-team').nameOf('list-accounts?page=2')).not.toBe(name);
  });
});
