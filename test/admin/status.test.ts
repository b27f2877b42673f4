import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judgeHealth } from '../../src/admin/health.ts';
import { statusText } from '../../src/admin/status.ts';
import { fullSnapshot } from '../support/snapshot.ts';

const status = (snapshot = fullSnapshot()) =>
  JSON.parse(statusText(snapshot, { ...judgeHealth(snapshot), since: snapshot.startedAt }, 'token'));

/** Every member by its path; those of lists once. */
function membersOf(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return membersOf(value[0], `${path}[]`);
  if (typeof value !== 'object' || value === null || path === 'requests.problems') return [path];
  return Object.entries(value).flatMap(([name, member]) =>
    membersOf(member, path === '' ? name : `${path}.${name}`),
  );
}

describe('the status', () => {
  it('the status has the values of the snapshot', () => {
    expect(status()).toMatchObject({
      health: 'failing',
      since: '2026-11-01T11:59:00.000Z',
      reasons: [
        { code: 'circuit-open', detail: expect.stringMatching(/^The upstream is down: it failed 12 times/) },
        { code: 'key-store-failing' },
        { code: 'gate-closed' },
      ],
      ready: true,
      notReady: null,
      uptimeSeconds: 60,
      key: {
        loaded: true,
        fingerprint: '0123abcd',
        generation: 3,
        ageSeconds: 30,
        lastAcceptedAt: '2026-11-01T11:59:59.000Z',
        reloadFailures: 2,
        reloadFailure: 'file:/run/secrets/key: does not exist',
      },
      requests: { started: 4, finished: 3, aborted: 0, inFlight: 1, problems: { 'caller-rate-limited': 1 } },
      upstream: { attempts: 34, retries: 4, inFlight: 1 },
      gate: {
        state: 'closed',
        closedForSeconds: 2,
        callers: [
          { name: 'script', oldestWaitSeconds: 1.5, refreshes: 0 },
          { waiting: 2, refreshes: 3 },
        ],
      },
      circuit: {
        state: 'open',
        probeInSeconds: 4,
        operations: [
          { operation: 'list-accounts', state: 'closed' },
          { operation: 'account', state: 'open', failuresInARow: 11, probeInSeconds: 2 },
        ],
      },
      callers: {
        count: 1,
        list: [{ name: 'script', tokens: 2, nextExpiry: '2027-01-01T00:00:00.000Z', requests: 3 }],
      },
      settings: ['PORT', 'CACHE_TTL'],
    });
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
