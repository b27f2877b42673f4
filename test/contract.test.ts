/**
 * The names that scripts, boards and alerts are written against: settings, members of `/status`, metrics and members of
 * log lines, as a running gateway shows them. A change of a file in `contract/` is a change for users: it belongs in
 * CHANGELOG. `npx vitest run test/contract.test.ts -u` writes them.
 */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { describedSettings } from '../src/config/settings.ts';
import { bearer, enrol, startWith } from './support/callers-files.ts';
import { accounts, type TestGateway } from './support/gateway.ts';
import { startWorkspaces } from './support/workspaces.ts';

const file = (name: string): string => join(import.meta.dirname, 'contract', name);

/** A line for each member of what was shown: its place and the types that it may have. */
function membersOf(...shown: readonly unknown[]): string {
  const types = new Map<string, Set<string>>();
  const visit = (value: unknown, place: string): void => {
    if (Array.isArray(value)) {
      for (const one of value) visit(one, `${place}[]`);
    } else if (typeof value === 'object' && value !== null) {
      for (const [name, member] of Object.entries(value))
        visit(member, place === '' ? name : `${place}.${name}`);
    } else {
      const known = types.get(place) ?? new Set();
      types.set(place, known.add(value === null ? 'null' : typeof value));
    }
  };
  for (const one of shown) visit(one, '');
  return linesOf([...types].map(([place, known]) => `${place} ${[...known].sort().join(' | ')}`));
}

const linesOf = (rows: readonly string[]): string => `${rows.toSorted().join('\n')}\n`;

/** A gateway that has answered, refused and failed, so that lists have members. */
async function usedGateway(): Promise<TestGateway> {
  const { token, entry } = enrol('reports-script');
  const gateway = await startWith([entry], { ADMIN_PORT: '0', UPSTREAM_LIMIT: '1000/1m' });
  const headers = bearer(token);
  await gateway.ask(accounts, { headers });
  await gateway.ask(accounts, { headers });
  await gateway.ask('/api/nothing/', { headers });
  await gateway.ask(accounts);
  gateway.standIn.behave({ status: 500, headers: { 'retry-after': 'soon' } });
  await gateway.ask(`${accounts}?fails`, { headers });
  return gateway;
}

describe('the names that others depend on are held by a file', () => {
  it('holds the settings, with their defaults', async () => {
    const rows = Object.entries(describedSettings).map(
      ([name, { default: value }]) => `${name}=${value ?? ''}`,
    );
    await expect(linesOf(rows)).toMatchFileSnapshot(file('settings.txt'));
  });

  it('holds the members of /status and their types, for one workspace and for several', async () => {
    const one = await usedGateway();
    const several = await startWorkspaces(['', 'east'], { ADMIN_PORT: '0' });
    const shown = await Promise.all([one, several.gateway].map((gateway) => gateway.askAdmin('/status')));
    await expect(membersOf(...shown.map((came) => came.json()))).toMatchFileSnapshot(file('status.txt'));
  });

  it('holds each metric of the gateway with its type and labels', async () => {
    const gateway = await usedGateway();
    const rows = new Map<string, Set<string>>();
    let labels = new Set<string>();
    for (const line of (await gateway.askAdmin('/metrics')).body.toString().split('\n')) {
      const [, metric] = /^# TYPE (analytics_gateway_\S+ \S+)$/.exec(line) ?? [];
      if (metric !== undefined) {
        labels = new Set();
        rows.set(metric, labels);
      }
      if (line.startsWith('analytics_gateway_'))
        for (const [, name = ''] of line.matchAll(/[{,](\w+)="/g)) labels.add(name);
    }
    const lines = [...rows].map(([metric, found]) => `${metric} ${[...found].sort().join(',')}`.trim());
    await expect(linesOf(lines)).toMatchFileSnapshot(file('metrics.txt'));
  });

  it('holds the members of log lines', async () => {
    const gateway = await usedGateway();
    const lines = gateway.logLines().map(({ msg, ...members }) => ({ [String(msg)]: members }));
    await expect(membersOf(...lines)).toMatchFileSnapshot(file('log.txt'));
  });
});
