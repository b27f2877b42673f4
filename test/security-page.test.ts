import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..');
const page = readFileSync(join(root, 'docs/security.md'), 'utf8');

interface Row {
  readonly id: string;
  readonly files: readonly string[];
  readonly proofs: readonly (readonly [file: string, test: string])[];
}

/** The rows of all tables: the last two columns have the same meaning in each. */
const rows: readonly Row[] = [...page.matchAll(/^\| ([PWB]\d+) \|.* \| ([^|]*) \| ([^|]*) \|$/gm)].map(
  ([, id = '', files = '', proofs = '']) => ({
    id,
    files: [...files.matchAll(/`([^`]+)`/g)].map(([, file = '']) => file),
    proofs: [...proofs.matchAll(/`([^`]+)` "([^"]+)"/g)].map(([, file = '', test = '']) => [file, test]),
  }),
);

const promises = Array.from({ length: 20 }, (_, at) => `P${at + 1}`);
const checks = Array.from({ length: 27 }, (_, at) => `W${String(at + 1).padStart(2, '0')}`);

/** All that callers take from together. A new bound belongs here and into the table. */
const bounds = [
  ...[
    'connections',
    'descriptors',
    'unread bytes',
    'pipelined requests',
    'failed logins',
    'signature checks',
  ],
  ...["callers' own limits", 'flights', 'coalesced subscribers', 'gate queue', 'attempts at once', 'circuit'],
  ...['retries', 'cache bytes', 'bodies to compress', 'bodies in flight', 'log lines', 'counts per caller'],
  ...['recent problems', 'history', 'live-event consoles', 'purge', 'records in the shared store'],
  ...['attempts in a window of `UPSTREAM_LIMIT`'],
];

describe('docs/security.md', () => {
  it('docs/security.md has every bound that callers share, how much it is, and each caller’s share or why there is none', () => {
    const told = [...page.matchAll(/^\| B\d\d \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \| [^|]+ \|$/gm)];
    expect(told.map(([, name]) => name)).toEqual(bounds);
    expect(told.filter(([, , most, share]) => !most?.trim() || share?.trim() === 'none')).toEqual([]);
  });

  it('docs/security.md has every promise and check of the threat model, in a table or among what is not kept', () => {
    const missing = page.split('## What is not kept')[1] ?? '';
    const named = new Set([...rows.map(({ id }) => id), ...(missing.match(/\b(?:P\d+|W\d\d)\b/g) ?? [])]);
    expect([...promises, ...checks].filter((id) => !named.has(id))).toEqual([]);
  });

  it.each(rows.map((row) => [row.id, row] as const))(
    'the row %s of docs/security.md names files that exist, and a proof',
    (_, row) => {
      expect(row.files.length).toBeGreaterThan(0);
      const exists = (file: string): boolean =>
        existsSync(join(root, 'src', file)) || existsSync(join(root, file));
      expect(row.files.filter((file) => !exists(file))).toEqual([]);
      expect(row.proofs.length).toBeGreaterThan(0);
    },
  );

  it.each(rows.flatMap(({ id, proofs }) => proofs.map(([file, test]) => [id, file, test] as const)))(
    'the row %s of docs/security.md: %s has the test “%s”',
    (_, file, test) => {
      const text = readFileSync(join(root, 'test', file), 'utf8');
      expect(text.includes(test), `${file} has no “${test}”`).toBe(true);
    },
  );

  it('docs/security.md has at most 250 lines', () => {
    expect(page.split('\n').length).toBeLessThanOrEqual(250);
  });
});
