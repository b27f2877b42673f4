import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAst } from 'rolldown/parseAst';
import { describe, expect, it } from 'vitest';

const files = globSync('**/*.test.ts', { cwd: import.meta.dirname, exclude: ['**/node_modules'] }).map(
  (path) => ({ path, text: readFileSync(join(import.meta.dirname, path), 'utf8') }),
);

/** No sentence begins with one of these: a verb that lacks its subject, or a word that goes on with another sentence. */
const verbs =
  'is are was were has have had does do can cannot will would must may should gives give tells tell says say shows ' +
  'takes take waits ends finds needs holds keeps makes make asks ask goes begins serves publishes leaves lose loses ' +
  'forgets forget starts signs bounds delivers speaks spreads closes refuses refuse mounts lets let hold keep know';
const connectives = 'and but or nor to than then because named whose';
const refused = new Set(`${verbs} ${connectives}`.split(' '));

interface Node {
  readonly type: string;
  readonly name?: string;
  readonly value?: unknown;
  readonly callee?: Node;
  readonly object?: Node;
  readonly tag?: Node;
  readonly arguments?: readonly Node[];
}

/** The name that a chain such as `it.each(rows)` begins with. */
function rootOf(node: Node | undefined): string | undefined {
  if (node === undefined || node.type === 'Identifier') return node?.name;
  return rootOf(node.callee ?? node.object ?? node.tag);
}

/** The titles of the tests of a file. */
function titlesOf(text: string): string[] {
  const titles: string[] = [];
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    const node = value as Node;
    const [title] =
      node.type === 'CallExpression' && rootOf(node.callee) === 'it' ? (node.arguments ?? []) : [];
    if (typeof title?.value === 'string') titles.push(title.value);
    for (const member of Object.values(value)) visit(member);
  };
  visit(parseAst(text, { lang: 'ts' }));
  return titles;
}

describe('the titles of tests', () => {
  it('every title of a test has its subject, so that it is understood alone', () => {
    const titles = files.flatMap(({ path, text }) => titlesOf(text).map((title) => ({ path, title })));
    expect(titles.length).toBeGreaterThan(1_000);
    const bare = titles.filter(({ title }) => refused.has(title.split(/[ ,]/, 1)[0] ?? ''));
    expect(bare.map(({ path, title }) => `${path}: ${title}`)).toEqual([]);
  });

  it('a title is found in each form of a test', () => {
    const text =
      "it('a', f); it.each([1])('b', f); it.skipIf(x)('c', f); describe('d', () => it.for([])('e', f));";
    expect(titlesOf(text)).toEqual(['a', 'b', 'c', 'e']);
  });
});
