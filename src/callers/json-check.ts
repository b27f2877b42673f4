/**
 * Reads typed values out of a JSON tree and notes every problem with its path, so that whoever wrote the file
 * corrects it once. Never repeats a value: somebody may have put a token where a digest belongs.
 */
import type { JsonNode } from './json-tree.ts';
import { didYouMean } from './spelling-policy.ts';

export type JsonMembers = ReadonlyMap<string, JsonNode>;

export interface JsonCheck {
  readonly problems: string[];
  add(path: string, problem: string): void;
  /** The members of an object, unknown and repeated ones noted; `undefined` where it is no object. */
  members(node: JsonNode, path: string, known: readonly string[]): JsonMembers | undefined;
  items(node: JsonNode | undefined, path: string): readonly JsonNode[];
  text(node: JsonNode | undefined, path: string): string | undefined;
  /** A string, or a list of strings; at least one. */
  texts(node: JsonNode | undefined, path: string): string[];
  number(node: JsonNode | undefined, path: string, least: number, most: number): number | undefined;
}

const kinds = {
  object: 'an object',
  array: 'a list',
  string: 'a string',
  number: 'a number',
  boolean: 'true or false',
  null: 'null',
};

export function checkJson(): JsonCheck {
  const problems: string[] = [];

  function add(path: string, problem: string): void {
    problems.push(path === '' ? problem : `${path}: ${problem}`);
  }

  function wrongKind(node: JsonNode, path: string, wanted: string): undefined {
    add(path, `must be ${wanted}, not ${kinds[node.kind]}`);
    return undefined;
  }

  function members(node: JsonNode, path: string, known: readonly string[]): JsonMembers | undefined {
    if (node.kind !== 'object') return wrongKind(node, path, 'an object');
    const found = new Map<string, JsonNode>();
    for (const { name, value } of node.members) {
      const inside = path === '' ? name : `${path}.${name}`;
      if (found.has(name)) add(inside, 'is written twice');
      else if (known.length > 0 && !known.includes(name)) {
        const shown = name.length > 40 ? `${name.slice(0, 12)}…` : name;
        add(path === '' ? shown : `${path}.${shown}`, `is not known here${didYouMean(name, known)}`);
      }
      found.set(name, value);
    }
    return found;
  }

  function items(node: JsonNode | undefined, path: string): readonly JsonNode[] {
    if (node === undefined) return [];
    if (node.kind === 'array') return node.items;
    wrongKind(node, path, 'a list');
    return [];
  }

  function text(node: JsonNode | undefined, path: string): string | undefined {
    if (node === undefined) {
      add(path, 'is missing');
      return undefined;
    }
    if (node.kind !== 'string') return wrongKind(node, path, 'a string');
    const value = String(node.value);
    if (value !== '') return value;
    add(path, 'is empty');
    return undefined;
  }

  function texts(node: JsonNode | undefined, path: string): string[] {
    if (node?.kind !== 'array') {
      const one = text(node, path);
      return one === undefined ? [] : [one];
    }
    if (node.items.length === 0) add(path, 'is empty');
    return node.items.flatMap((item, index) => text(item, `${path}[${index}]`) ?? []);
  }

  function number(node: JsonNode | undefined, path: string, least: number, most: number): number | undefined {
    if (node === undefined) return undefined;
    if (node.kind !== 'number') return wrongKind(node, path, 'a number');
    const value = Number(node.value);
    if (value >= least && value <= most) return value;
    add(path, `must lie between ${least} and ${most}`);
    return undefined;
  }

  return { problems, add, members, items, text, texts, number };
}
