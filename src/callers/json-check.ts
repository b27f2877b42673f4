/**
 * Reads typed values out of a JSON tree and notes every problem with its path, so that all of them can
 * be corrected at once. Never repeats a value: it may be a token where a digest belongs.
 */

import { didYouMean } from '../config/spelling.ts';
import { itemsOf, type JsonNode, membersOf, textOf } from './json-tree.ts';

export type JsonMembers = ReadonlyMap<string, JsonNode>;

const kinds: Readonly<Record<JsonNode['type'], string>> = {
  object: 'an object',
  array: 'a list',
  string: 'a string',
  number: 'a number',
  boolean: 'true or false',
  null: 'null',
  property: 'a member',
};

/** What looks like a member of ours. */
const memberName = /^[A-Za-z_]{1,24}$/;

export class JsonCheck {
  readonly problems: string[] = [];

  add(path: string, problem: string): void {
    this.problems.push(path === '' ? problem : `${path}: ${problem}`);
  }

  /** The members of an object, unknown and repeated ones noted; `undefined` where it is no object. */
  members(node: JsonNode, path: string, known: readonly string[]): JsonMembers | undefined {
    if (node.type !== 'object') return this.#wrongKind(node, path, 'an object');
    const found = new Map<string, JsonNode>();
    for (const { name, value } of membersOf(node)) {
      const inside = path === '' ? name : `${path}.${name}`;
      if (found.has(name)) this.add(inside, 'is written twice');
      else if (known.length > 0 && !known.includes(name)) {
        // Anything else may be a credential in the wrong place.
        const shown = memberName.test(name) ? name : `(malformed, ${name.length} characters)`;
        this.add(path === '' ? shown : `${path}.${shown}`, `is not known here${didYouMean(name, known)}`);
      }
      found.set(name, value);
    }
    return found;
  }

  items(node: JsonNode | undefined, path: string): readonly JsonNode[] {
    if (node !== undefined && node.type !== 'array') this.#wrongKind(node, path, 'a list');
    return itemsOf(node);
  }

  text(node: JsonNode | undefined, path: string): string | undefined {
    if (node === undefined) {
      this.add(path, 'is missing');
      return undefined;
    }
    const value = textOf(node);
    if (value === undefined) return this.#wrongKind(node, path, 'a string');
    if (value !== '') return value;
    this.add(path, 'is empty');
    return undefined;
  }

  /** A string, or a list of strings; at least one. */
  texts(node: JsonNode | undefined, path: string): string[] {
    if (node?.type !== 'array') {
      const one = this.text(node, path);
      return one === undefined ? [] : [one];
    }
    const found = itemsOf(node);
    if (found.length === 0) this.add(path, 'is empty');
    return found.flatMap((item, index) => this.text(item, `${path}[${index}]`) ?? []);
  }

  number(node: JsonNode | undefined, path: string, least: number, most: number): number | undefined {
    if (node === undefined) return undefined;
    if (node.type !== 'number') return this.#wrongKind(node, path, 'a number');
    const value = Number(node.value);
    if (value >= least && value <= most) return value;
    this.add(path, `must lie between ${least} and ${most}`);
    return undefined;
  }

  #wrongKind(node: JsonNode, path: string, wanted: string): undefined {
    this.add(path, `must be ${wanted}, not ${kinds[node.type]}`);
    return undefined;
  }
}
