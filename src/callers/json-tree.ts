/**
 * JSON with positions: what `JSON.parse` forgets and the callers file needs. A member written twice is visible
 * (RFC 8259 section 4 leaves its meaning open, and a grant must not have two), problems have a line, and the
 * token command can change one entry and leave every other byte alone. Pure: no `this`, no I/O, no clock.
 */

interface Span {
  /** Offsets into the text: the first character, and the one after the last. */
  readonly start: number;
  readonly end: number;
}

export interface JsonObject extends Span {
  readonly kind: 'object';
  readonly members: readonly { readonly name: string; readonly start: number; readonly value: JsonNode }[];
}

export interface JsonArray extends Span {
  readonly kind: 'array';
  readonly items: readonly JsonNode[];
}

export interface JsonScalar extends Span {
  readonly kind: 'string' | 'number' | 'boolean' | 'null';
  readonly value: string | number | boolean | null;
}

export type JsonNode = JsonObject | JsonArray | JsonScalar;

/** The text is not JSON. The message names line and column and quotes nothing. */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
}

const maxDepth = 32;
const scalar = /"(?:[^"\\]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
const blank = /[ \t\n\r]*/y;

/** Reads a whole JSON text (RFC 8259) into a tree with positions. */
export function parseJsonTree(text: string): JsonNode {
  let at = 0;

  function fail(what: string): never {
    const before = text.slice(0, at).split('\n');
    throw new JsonTextError(`line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${what}`);
  }

  function skipBlank(): void {
    blank.lastIndex = at;
    at += blank.exec(text)?.[0].length ?? 0;
  }

  /** Reads `one` item after another, separated by commas, to the closing bracket. */
  function list(close: string, one: () => void): void {
    at++;
    skipBlank();
    if (text[at] === close) {
      at++;
      return;
    }
    for (;;) {
      one();
      skipBlank();
      const next = text[at];
      if (next !== ',' && next !== close) fail(`"," or "${close}" expected`);
      at++;
      if (next === close) return;
      skipBlank();
    }
  }

  function leaf(): JsonScalar {
    const start = at;
    scalar.lastIndex = at;
    const source = scalar.exec(text)?.[0];
    if (source === undefined) fail('a value expected');
    let value: string | number | boolean | null;
    try {
      value = JSON.parse(source);
    } catch {
      fail('a string with a line break or an escape that JSON does not have');
    }
    at += source.length;
    const kind = value === null ? 'null' : (typeof value as 'string' | 'number' | 'boolean');
    return { kind, value, start, end: at };
  }

  function node(depth: number): JsonNode {
    if (depth > maxDepth) fail('nested too deeply');
    const start = at;
    if (text[at] === '[') {
      const items: JsonNode[] = [];
      list(']', () => items.push(node(depth + 1)));
      return { kind: 'array', items, start, end: at };
    }
    if (text[at] === '{') {
      const members: { name: string; start: number; value: JsonNode }[] = [];
      list('}', () => {
        if (text[at] !== '"') fail('a member name in double quotes expected');
        const name = leaf();
        skipBlank();
        if (text[at] !== ':') fail('":" expected');
        at++;
        skipBlank();
        members.push({ name: String(name.value), start: name.start, value: node(depth + 1) });
      });
      return { kind: 'object', members, start, end: at };
    }
    return leaf();
  }

  skipBlank();
  const root = node(0);
  skipBlank();
  if (at < text.length) fail('nothing more expected');
  return root;
}

/** The value of an object's member; `undefined` where there is none. */
export function memberOf(node: JsonNode | undefined, name: string): JsonNode | undefined {
  return node?.kind === 'object' ? node.members.find((member) => member.name === name)?.value : undefined;
}
