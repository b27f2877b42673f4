import { describe, expect, it } from 'vitest';
import { type HealthCode, healthCodes, judgeHealth } from '../../src/admin/health.ts';
import { HealthWatch } from '../../src/admin/history.ts';
import type { LoginKeys } from '../../src/callers/callers-snapshot.ts';
import { calmSnapshot, type SnapshotOfOne, timeAt } from '../support/snapshot.ts';

const calm = calmSnapshot();
const atMs = Date.parse(calm.at);
const dayMs = 86_400_000;
const openCircuit = { state: 'open' as const, failuresInARow: 7, probeInSeconds: 4, lastFailure: null };
const endsIn = (ms: number, ...more: string[]): Partial<SnapshotOfOne> => ({
  callers: {
    ...calm.callers,
    beside: {
      ...calm.callers.beside,
      ending: { names: ['script', ...more], first: new Date(atMs + ms).toISOString() },
    },
  },
});
const waitsFor = (...waitsSeconds: readonly number[]): Partial<SnapshotOfOne> => ({
  gate: {
    ...calm.gate,
    callers: waitsSeconds.map((oldestWaitSeconds, index) => ({
      name: index === 0 ? 'page' : `page-${index}`,
      ...{ waiting: 3, oldestWaitSeconds, refreshes: 1 },
    })),
  },
});

const newKeyIs = (standing: 'untried' | 'refused', forMs: number): Partial<SnapshotOfOne> => ({
  key: {
    ...calm.key,
    newKey: { fingerprint: '4567ef01', generation: 3, standing, since: timeAt(-forMs) },
  },
});

const loginsAre = (...logins: readonly Partial<LoginKeys>[]): Partial<SnapshotOfOne> => ({
  callers: {
    ...calm.callers,
    beside: {
      ...calm.callers.beside,
      logins: logins.map((login) => ({
        ...{ address: 'https://login.example.com/keys', callers: ['staff'], keys: 2 },
        ...{ failure: undefined, failingSince: undefined, servesUntil: atMs + dayMs },
        ...login,
      })),
    },
  },
});
const failed = { failure: 'its server refused the connection', failingSince: atMs - 1_000 };

const storeIs = (inUse: boolean): Partial<SnapshotOfOne> => ({
  sharedStore: calm.sharedStore && {
    ...calm.sharedStore,
    inUse,
    reason: inUse ? null : 'connection refused',
  },
});

const certificateEnds = (ms: number, lifetimeMs = 90 * dayMs): Partial<SnapshotOfOne> => ({
  beside: { certificate: { validFrom: atMs + ms - lifetimeMs, validTo: atMs + ms, problem: undefined } },
});

const cases: [what: string, changes: Partial<SnapshotOfOne>, codes: HealthCode[], says?: RegExp][] = [
  ['nothing is wrong', {}, []],
  [
    'no key is loaded',
    {
      notReady: 'no key is loaded yet',
      key: { ...calm.key, loaded: false, reloadFailure: 'exec:x: failed' },
    },
    ['key-missing'],
    /exec:x: failed/,
  ],
  [
    'no key is loaded and none was refused',
    { key: { ...calm.key, loaded: false } },
    ['key-missing'],
    /^No key is loaded yet\.$/,
  ],
  ['the upstream refuses the key', { key: { ...calm.key, rejected: true } }, ['key-refused'], /0123abcd/],
  [
    'another key than the newest is in use',
    { key: { ...calm.key, fallenBack: true } },
    ['key-fallen-back'],
    /accepts the previous one/,
  ],
  [
    'the upstream refuses the new key',
    newKeyIs('refused', 0),
    ['new-key-refused'],
    /new key 4567ef01 .*0123abcd\) stays/,
  ],
  [
    'the upstream refuses the new key and the one in use',
    { key: { ...calm.key, ...newKeyIs('refused', 0).key, rejected: true } },
    ['key-refused', 'new-key-refused'],
    /only key checks are sent with it\.$|new key 4567ef01 of the secret store as well\.$/,
  ],
  ['a new key is on trial', newKeyIs('untried', 9_999), []],
  ['a new key could not be tried for 10 s', newKeyIs('untried', 10_000), ['new-key-untried'], /not said yet/],
  [
    'the store fails while a key is loaded',
    { key: { ...calm.key, reloadFailure: 'file:/run/secrets/key: does not exist' } },
    ['key-store-failing'],
    /does not exist/,
  ],
  [
    'the circuit to the whole upstream is open',
    { circuit: { ...openCircuit, operations: [{ operation: 'list-accounts', ...openCircuit }] } },
    ['circuit-open'],
    /it failed 7 times in a row\. The next request in 4 s or later tries it again\.$/,
  ],
  [
    'the circuit to the whole upstream is open and a request may try it',
    { circuit: { ...openCircuit, probeInSeconds: 0, lastFailure: null, operations: [] } },
    ['circuit-open'],
    /in a row\. The next request tries it again\.$/,
  ],
  [
    'the upstream refused a read with the key a moment ago',
    { key: { ...calm.key, beside: { ...calm.key.beside, suspect: true } } },
    ['key-suspect'],
    /0123abcd/,
  ],
  [
    'the circuit of one operation is open',
    {
      circuit: {
        ...calm.circuit,
        operations: [
          { operation: 'list-accounts', ...openCircuit },
          { operation: 'list-api-keys', ...openCircuit, state: 'closed' },
        ],
      },
    },
    ['operation-circuit-open'],
    /fails for list-accounts, and/,
  ],
  [
    'the gate is closed',
    { gate: { ...calm.gate, state: 'closed', closedForSeconds: 90 } },
    ['gate-closed'],
    /closed for another 90 s/,
  ],
  [
    'the gate is closed for minutes',
    { gate: { ...calm.gate, state: 'closed', closedForSeconds: 130 } },
    ['gate-closed'],
    /closed for another 2 min/,
  ],
  [
    'the gate is closed for hours',
    { gate: { ...calm.gate, state: 'closed', closedForSeconds: 10_800 } },
    ['gate-closed'],
    /closed for another 3 h/,
  ],
  [
    'the gate is held by what the upstream says is left',
    { gate: { ...calm.gate, closedForSeconds: 300 } },
    ['gate-closed'],
    /says that little is left.*for another 5 min/,
  ],
  [
    'the gate is closed for less than 2 s',
    { gate: { ...calm.gate, state: 'closed', closedForSeconds: 1.999 } },
    [],
  ],
  ['a request has waited for 5 s', waitsFor(5), ['callers-waiting'], /page wait long.*for 5 s/],
  ['requests wait for less', waitsFor(4.999), []],
  [
    'requests of many callers wait long',
    waitsFor(5, 6, 7, 8, 9, 10),
    ['callers-waiting'],
    /of page-5, page-4, page-3, page-2, page-1 and 1 more wait long.*for 10 s/,
  ],
  ['the keys of a company login are there', loginsAre({}), []],
  [
    'the keys of a company login were never fetched',
    loginsAre({}, { ...failed, keys: undefined, servesUntil: undefined }),
    ['logins-failing'],
    /^Company logins of staff: all get 401, because the keys at https:\S+ cannot be fetched \(its server refused the connection\)\. Static tokens/,
  ],
  [
    'the keys of a company login are on their way',
    loginsAre({ keys: undefined, servesUntil: undefined }),
    [],
  ],
  ['the keys of a company login could not be fetched again a moment ago', loginsAre(failed), []],
  [
    'the keys of a company login could not be fetched for an hour',
    loginsAre({ ...failed, failingSince: atMs - 3_600_000, servesUntil: atMs + dayMs - 3_600_000 }),
    ['logins-failing'],
    /of staff: all get 401 from 2026-\S+Z on, because the keys/,
  ],
  [
    'the keys of a company login could not be fetched for a day',
    loginsAre({ ...failed, servesUntil: atMs }),
    ['logins-failing'],
    /of staff: all get 401, because .* \(its server refused the connection\)\./,
  ],
  [
    'the key set of a company login is empty',
    loginsAre({ keys: 0, callers: ['staff', 'admins'] }),
    ['logins-failing'],
    /of staff, admins: all get 401, because the key set at \S+ has no key for signatures\./,
  ],
  [
    'the newest callers file is refused',
    { callers: { ...calm.callers, problems: ['callers[0]: has no name', 'another'] } },
    ['callers-file-refused'],
    /callers\[0\]: has no name \(and 1 more\)/,
  ],
  [
    'the newest callers file has one fault',
    { callers: { ...calm.callers, problems: ['callers[0]: has no name'] } },
    ['callers-file-refused'],
    /callers\[0\]: has no name\.$/,
  ],
  [
    'tokens end soon',
    endsIn(7 * dayMs, 'page', 'third', 'fourth', 'fifth', 'sixth'),
    ['token-ending'],
    /^Tokens of script, page, third, fourth, fifth, sixth end within 14 days, .*: the first ends at 2026-11-08T12/,
  ],
  ['a token has ended', endsIn(-dayMs), ['token-ending'], /the first has ended at/],
  [
    'the certificate ends within 7 days',
    certificateEnds(7 * dayMs),
    ['certificate-ending'],
    / ends at 2026-11-08T12/,
  ],
  ['the certificate ends later', certificateEnds(7 * dayMs + 1), []],
  ['the certificate has ended', certificateEnds(-dayMs), ['certificate-ending'], /has ended at/],
  ['a certificate of a day ends in more than a quarter of it', certificateEnds(dayMs / 4 + 1, dayMs), []],
  [
    'a certificate of a day ends in a quarter of it',
    certificateEnds(dayMs / 4, dayMs),
    ['certificate-ending'],
  ],
  ['the gateway speaks plain HTTP', { beside: { certificate: undefined } }, []],
  [
    'the newest certificate is refused',
    {
      beside: {
        certificate: { validFrom: atMs, validTo: atMs + 90 * dayMs, problem: 'TLS_KEY_FILE is not the key' },
      },
    },
    ['certificate-refused'],
    /TLS_KEY_FILE is not the key\.$/,
  ],
  [
    'log lines were lost',
    { log: { lostLines: 12, lastLostAt: timeAt(-60_000) } },
    ['log-lines-lost'],
    /12 since the start/,
  ],
  ['log lines were lost an hour ago', { log: { lostLines: 12, lastLostAt: timeAt(-3_600_000) } }, []],
  [
    'the shared store cannot be reached',
    storeIs(false),
    ['shared-store-away'],
    /redis:\/\/store:6379 cannot be used \(connection refused\)/,
  ],
  ['the shared store is there', storeIs(true), []],
  ['the key of another workspace is not loaded yet', { notReady: 'a key is not loaded yet' }, []],
  [
    'answers name the upstream’s address',
    { links: { leadPast: true, dropped: 0 } },
    ['links-lead-past'],
    /sends its token past the gateway/,
  ],
  ['the gateway stops', { notReady: 'shutting down' }, ['stopping']],
];

describe('the verdict on the gateway', () => {
  it.each(cases)(
    'the verdict on the gateway, where %s, has the reasons that this gives',
    (_what, changes, codes, says = /(?:)/) => {
      const { health, reasons } = judgeHealth(calmSnapshot(changes));
      expect(reasons.map(({ code }) => code)).toEqual(codes);
      const [first] = codes;
      expect(health).toBe(first === undefined ? 'ok' : healthCodes[first]);
      for (const { detail, todo } of reasons) {
        expect(detail).toMatch(says);
        expect(detail).toMatch(/^[A-Z].*\.$/);
        expect(todo).toMatch(/^[A-Z].*\.$/);
      }
    },
  );

  it('the verdict on the gateway has a case here for each code', () => {
    expect(new Set(cases.flatMap(([, , codes]) => codes))).toEqual(new Set(Object.keys(healthCodes)));
  });

  it('the verdict on the gateway is as bad as the worst of several reasons, and lists the worst first', () => {
    const { health, reasons } = judgeHealth(
      calmSnapshot({
        ...endsIn(dayMs),
        gate: { ...calm.gate, state: 'closed', closedForSeconds: 2 },
        key: { ...calm.key, rejected: true },
      }),
    );
    expect(health).toBe('failing');
    expect(reasons.map(({ code }) => code)).toEqual(['key-refused', 'gate-closed', 'token-ending']);
  });
});

it('a token that ends soon is a notice, and nothing is wrong', () => {
  const { health, reasons } = judgeHealth(calmSnapshot(endsIn(dayMs)));
  expect([health, reasons.map(({ code }) => code)]).toEqual(['ok', ['token-ending']]);
});

describe('a reason', () => {
  it('a reason has its own since, whatever other reasons come and go, and what lies behind it', () => {
    const watch = new HealthWatch();
    const down = { ...openCircuit, lastFailure: 'ECONNREFUSED', operations: [] };
    const failing = { key: { ...calm.key, reloadFailure: 'no such file' } };
    const reasonsAt = (ms: number, changes: Partial<SnapshotOfOne>) =>
      watch
        .judge(calmSnapshot({ at: timeAt(ms), ...changes }))
        .reasons.map(({ code, since, cause }) => [code, Date.parse(since) - atMs, cause]);
    reasonsAt(0, {});
    expect(reasonsAt(1_000, { circuit: down })).toEqual([['circuit-open', 1_000, 'ECONNREFUSED']]);
    expect(reasonsAt(5_000, { circuit: down, ...failing })).toEqual([
      ['circuit-open', 1_000, 'ECONNREFUSED'],
      ['key-store-failing', 5_000, 'no such file'],
    ]);
    expect(reasonsAt(7_000, failing)).toEqual([['key-store-failing', 5_000, 'no such file']]);
    expect(reasonsAt(9_000, { circuit: down })).toEqual([['circuit-open', 9_000, 'ECONNREFUSED']]);
  });
});

describe('the time since which the verdict is the same', () => {
  it('the time since which the verdict is the same begins with the start, and anew with each other verdict', () => {
    const { judge } = new HealthWatch();
    const at = (ms: number, changes: Partial<SnapshotOfOne> = {}) =>
      Date.parse(judge(calmSnapshot({ at: timeAt(ms), ...changes })).since) - atMs;
    const closed = { gate: { ...calm.gate, state: 'closed' as const, closedForSeconds: 2 } };
    expect(at(0)).toBe(-60_000);
    expect(at(1_000, closed)).toBe(1_000);
    expect(at(2_000, { ...closed, ...endsIn(dayMs) })).toBe(1_000);
    expect(at(3_000)).toBe(3_000);
  });
});
