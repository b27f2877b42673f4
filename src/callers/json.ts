/**
 * JSON with positions, by jsonc-parser: a member written twice is visible (RFC 8259 section 4 leaves its meaning
 * open, and a grant must not have two), and problems have a line. Pure: no `this`, no I/O, no clock.
 */
import { getLocation, type Node, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';
import { didYouMean } from '../config/misspellings.ts';

/** `value` of a string, number or boolean; `children` of an array; `membersOf` of an object. */
export type JsonNode = Node;

/** The text is not JSON. The message names line and column and quotes nothing. */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
}

const badString = 'a string with a line break or an escape that JSON does not have';
const messages: Readonly<Record<string, string>> = {
  InvalidSymbol: 'a character or a word that JSON does not have',
  InvalidNumberFormat: 'a number that JSON does not have',
  PropertyNameExpected: 'a member name in double quotes expected',
  ValueExpected: 'a value expected',
  ColonExpected: '":" expected',
  EndOfFileExpected: 'nothing more expected',
  InvalidCommentToken: 'a comment, which JSON does not have',
  UnexpectedEndOfComment: 'a comment, which JSON does not have',
  UnexpectedEndOfString: badString,
  UnexpectedEndOfNumber: 'a number that ends too early',
  InvalidUnicode: badString,
  InvalidEscapeCharacter: badString,
  InvalidCharacter: badString,
};

function describeError(text: string, root: JsonNode | undefined, { error, offset }: ParseError): string {
  const before = text.slice(0, offset).split('\n');
  const inArray = typeof getLocation(text, offset).path.at(-1) === 'number';
  const code = printParseErrorCode(error);
  const isBehind = root !== undefined && root.length > 0 && offset >= root.offset + root.length;
  const what =
    messages[isBehind && code === 'InvalidSymbol' ? 'EndOfFileExpected' : code] ??
    `"," or "${inArray ? ']' : '}'}" expected`;
  return `line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${what}`;
}

/** Reads a whole JSON text (RFC 8259) into a tree with positions. @throws JsonTextError */
export function parseJsonTree(text: string): JsonNode {
  const errors: ParseError[] = [];
  let root: JsonNode | undefined;
  try {
    root = parseTree(text, errors, { disallowComments: true });
  } catch (error) {
    // It calls itself for each level, so brackets by the thousand overflow the stack.
    if (error instanceof RangeError) throw new JsonTextError('nested too deeply');
    throw error;
  }
  const [first] = errors;
  if (first !== undefined) throw new JsonTextError(describeError(text, root, first));
  if (root === undefined) throw new JsonTextError('line 1, column 1: a value expected');
  return root;
}

/** The members of an object in their order, repeated ones included; none of anything else. */
export function membersOf(
  node: JsonNode | undefined,
): readonly { readonly name: string; readonly value: JsonNode }[] {
  if (node?.type !== 'object') return [];
  return (node.children ?? []).flatMap(({ children: [name, value] = [] }) =>
    name === undefined || value === undefined ? [] : { name: String(name.value), value },
  );
}

/** The value of an object's member; `undefined` where there is none. */
export function memberOf(node: JsonNode | undefined, name: string): JsonNode | undefined {
  return membersOf(node).find((member) => member.name === name)?.value;
}

/** The items of a list; none of anything else. */
export function itemsOf(node: JsonNode | undefined): readonly JsonNode[] {
  return node?.type === 'array' ? (node.children ?? []) : [];
}

/** The text of a string; `undefined` for anything else. */
export function textOf(node: JsonNode | undefined): string | undefined {
  return node?.type === 'string' ? String(node.value) : undefined;
}

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

/**
 * Reads typed values out of a tree and notes every problem with its path, so that all of them can be corrected at once.
 * Never repeats a value: it may be a token where a digest belongs.
 */
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
