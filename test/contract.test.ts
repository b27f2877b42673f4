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

/** A value with types in place of its values: a list is shown by what its members have in common or differ in. */
function shapeOf(value: unknown): unknown {
  if (value === null) return 'null';
  if (Array.isArray(value)) return value.length === 0 ? [] : [value.map(shapeOf).reduce(either)];
  if (typeof value !== 'object') return typeof value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shapeOf(member)]));
}

/** The shape of what has either shape. */
function either(one: unknown, other: unknown): unknown {
  if (JSON.stringify(one) === JSON.stringify(other)) return one;
  if (Array.isArray(one) && Array.isArray(other)) {
    return [...one, ...other].length === 0 ? [] : [[...one, ...other].reduce(either)];
  }
  if (isMembers(one) && isMembers(other)) {
    const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
    return Object.fromEntries(
      names.map((name) => [
        name,
        name in one && name in other ? either(one[name], other[name]) : (one[name] ?? other[name]),
      ]),
    );
  }
  if (one === 'null') return other;
  if (other === 'null') return one;
  return `${one} or ${other}`;
}

const isMembers = (shape: unknown): shape is Record<string, unknown> =>
  typeof shape === 'object' && shape !== null && !Array.isArray(shape);

const text = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** A gateway that has answered, refused and failed, so that lists have members. */
async function usedGateway(): Promise<TestGateway> {
  const { token, entry } = enrol('reports-script');
  const gateway = await startWith([entry], { ADMIN_PORT: '0' });
  const headers = bearer(token);
  await gateway.ask(accounts, { headers });
  await gateway.ask(accounts, { headers });
  await gateway.ask('/api/nothing/', { headers });
  await gateway.ask(accounts);
  gateway.standIn.behave({ status: 500 });
  await gateway.ask(`${accounts}?fails`, { headers });
  return gateway;
}

describe('the names that others depend on are held by a file', () => {
  it('holds the settings, with their defaults', async () => {
    const rows = Object.entries(describedSettings).map(
      ([name, { default: value }]) => `${name}=${value ?? ''}`,
    );
    await expect(`${rows.sort().join('\n')}\n`).toMatchFileSnapshot(file('settings.txt'));
  });

  it('holds the members of /status and their types, for one workspace and for several', async () => {
    const one = await usedGateway();
    const several = await startWorkspaces(['', 'east'], { ADMIN_PORT: '0', LOG_LEVEL: 'info' });
    const shapes = [
      (await one.askAdmin('/status')).json(),
      (await several.gateway.askAdmin('/status')).json(),
    ].map(shapeOf);
    await expect(text(shapes.reduce(either))).toMatchFileSnapshot(file('status.json'));
  });

  it('holds each metric with its type and labels', async () => {
    const gateway = await usedGateway();
    const exposition = (await gateway.askAdmin('/metrics')).body.toString();
    const rows = new Map<string, Set<string>>();
    for (const line of exposition.split('\n')) {
      const [, type] = /^# TYPE (\S+ \S+)$/.exec(line) ?? [];
      if (type !== undefined) rows.set(type, new Set());
      const labels = line.startsWith('#')
        ? undefined
        : [...line.matchAll(/[{,](\w+)="/g)].map(([, name]) => name);
      for (const label of labels ?? []) [...rows.values()].at(-1)?.add(label ?? '');
    }
    const lines = [...rows].map(([metric, labels]) => `${metric} ${[...labels].sort().join(',')}`.trim());
    await expect(`${lines.sort().join('\n')}\n`).toMatchFileSnapshot(file('metrics.txt'));
  });

  it('holds the members of log lines', async () => {
    const gateway = await usedGateway();
    const lines = new Map<string, unknown>();
    for (const { msg, ...members } of gateway.logLines()) {
      const name = String(msg);
      const shape = shapeOf(members);
      lines.set(name, lines.has(name) ? either(lines.get(name), shape) : shape);
    }
    await expect(text(Object.fromEntries([...lines].sort()))).toMatchFileSnapshot(file('log.json'));
  });
});
