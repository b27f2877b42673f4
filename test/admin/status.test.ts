import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { maxCallers } from '../../src/admin/caller-counts.ts';
import { judgeHealth } from '../../src/admin/health.ts';
import { statusText } from '../../src/admin/routes.ts';
import { fullSnapshot } from '../support/snapshot.ts';

/** The parts of the one workspace stand in `workspaces` alone, as in the snapshot of a gateway. */
function status(snapshot = fullSnapshot(), workspaces = snapshot.workspaces) {
  const { workspace, key, upstream, gate, circuit, cache, ...rest } = snapshot;
  const since = snapshot.startedAt;
  const { health, reasons } = judgeHealth(snapshot);
  const verdict = { health, reasons: reasons.map((one) => ({ ...one, since })), since };
  const recentOf = () => ({ seconds: 60, requests: 3, refused: 1 });
  return JSON.parse(statusText({ ...rest, workspaces }, verdict, recentOf, 'token'));
}

/** Every member by its path; those of lists once. */
function membersOf(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return membersOf(value[0], `${path}[]`);
  if (typeof value !== 'object' || value === null || path === 'requests.problems') return [path];
  return Object.entries(value).flatMap(([name, member]) =>
    membersOf(member, path === '' ? name : `${path}.${name}`),
  );
}

describe('the status', () => {
  it('the status has the verdict, the parts of the one workspace beside the rest, and what a purge needs', () => {
    const { fingerprint, ageSeconds, lastAcceptedAt } = fullSnapshot().key;
    const { attempts, outcomes } = fullSnapshot().upstream;
    expect(status()).toMatchObject({
      health: 'failing',
      since: '2026-11-01T11:59:00.000Z',
      reasons: [
        { code: 'circuit-open', detail: expect.stringMatching(/^The upstream is down: it failed 12 times/) },
        { code: 'key-store-failing' },
        { code: 'gate-closed' },
      ],
      workspace: null,
      key: { fingerprint, ageSeconds, lastAcceptedAt },
      upstream: { attempts, outcomes },
      workspaces: [],
      callers: { list: [{ name: 'script', nextExpiry: '2027-01-01T00:00:00.000Z', requests: 3 }] },
      purgeNeeds: 'token',
    });
  });

  it('the status lists several workspaces, and has their parts nowhere else', () => {
    const full = fullSnapshot();
    const [one = expect.unreachable()] = full.workspaces;
    expect(status(full, [one, { ...one, workspace: 'east' }])).toMatchObject({
      ...{ workspace: null, key: null, upstream: null, gate: null, circuit: null, cache: null },
      workspaces: [
        { workspace: null, gate: { state: 'closed' } },
        { workspace: 'east', key: { generation: 3 } },
      ],
    });
  });

  it('the status names a bounded number of waiting callers', () => {
    const { gate } = fullSnapshot();
    const [caller] = gate.callers;
    const callers = Array.from({ length: maxCallers + 1 }, () => caller ?? expect.unreachable());
    expect(status(fullSnapshot({ gate: { ...gate, callers } })).gate.callers).toHaveLength(maxCallers);
  });

  it('the status shows nothing of what stands beside it for metrics and charts', () => {
    expect(JSON.stringify(status())).not.toContain('beside');
    expect(JSON.stringify(fullSnapshot())).toContain('beside');
  });

  it('the status always has every member: one that does not apply is null', () => {
    const { key, gate } = fullSnapshot();
    const unknown = {
      ...{ fingerprint: null, generation: null, loadedAt: null, ageSeconds: null },
      ...{ lastAcceptedAt: null, lastRejectedAt: null, reloadFailure: null },
    };
    const bare = status(
      fullSnapshot({
        ready: false,
        notReady: 'no key is loaded yet',
        gate: { ...gate, attemptsPerSecond: null },
        key: { ...key, loaded: false, ...unknown },
      }),
    );
    expect(membersOf(bare)).toEqual(membersOf(status()));
    expect(bare).toMatchObject({
      ready: false,
      notReady: 'no key is loaded yet',
      key: { loaded: false, fingerprint: null },
    });
  });

  it('the status has exactly the members that docs/metrics.md lists', () => {
    const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
    const section = page.split('\n## Status\n')[1] ?? '';
    const documented = [...section.matchAll(/^\| (.*?) \|/gm)].flatMap(([, names = '']) =>
      [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => name),
    );
    expect(documented.toSorted()).toEqual(membersOf(status()).toSorted());
  });
});
