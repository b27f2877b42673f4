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

/**
 * Where the reading stands. An object, and not a variable that inner functions share: Node 26.10 with its Maglev
 * compiler lost an increment of such a variable in about half of all processes, so that files of some 12 kB and
 * more were refused although they were right.
 */
interface Cursor {
  readonly text: string;
  at: number;
}

function fail(cursor: Cursor, what: string): never {
  const before = cursor.text.slice(0, cursor.at).split('\n');
  throw new JsonTextError(`line ${before.length}, column ${(before.at(-1) ?? '').length + 1}: ${what}`);
}

function skipBlank(cursor: Cursor): void {
  blank.lastIndex = cursor.at;
  const found = blank.exec(cursor.text);
  if (found !== null) cursor.at += found[0].length;
}

/** Reads `one` item after another, separated by commas, to the closing bracket. */
function readList(cursor: Cursor, close: string, one: () => void): void {
  cursor.at += 1;
  skipBlank(cursor);
  if (cursor.text[cursor.at] === close) {
    cursor.at += 1;
    return;
  }
  for (;;) {
    one();
    skipBlank(cursor);
    const next = cursor.text[cursor.at];
    if (next !== ',' && next !== close) fail(cursor, `"," or "${close}" expected`);
    cursor.at += 1;
    if (next === close) return;
    skipBlank(cursor);
  }
}

function readScalar(cursor: Cursor): JsonScalar {
  const start = cursor.at;
  scalar.lastIndex = start;
  const source = scalar.exec(cursor.text)?.[0];
  if (source === undefined) fail(cursor, 'a value expected');
  let value: string | number | boolean | null;
  try {
    value = JSON.parse(source);
  } catch {
    fail(cursor, 'a string with a line break or an escape that JSON does not have');
  }
  cursor.at = start + source.length;
  const kind = value === null ? 'null' : (typeof value as 'string' | 'number' | 'boolean');
  return { kind, value, start, end: cursor.at };
}

function readNode(cursor: Cursor, depth: number): JsonNode {
  if (depth > maxDepth) fail(cursor, 'nested too deeply');
  const start = cursor.at;
  const first = cursor.text[start];
  if (first === '[') {
    const items: JsonNode[] = [];
    readList(cursor, ']', () => items.push(readNode(cursor, depth + 1)));
    return { kind: 'array', items, start, end: cursor.at };
  }
  if (first === '{') {
    const members: { name: string; start: number; value: JsonNode }[] = [];
    readList(cursor, '}', () => {
      if (cursor.text[cursor.at] !== '"') fail(cursor, 'a member name in double quotes expected');
      const name = readScalar(cursor);
      skipBlank(cursor);
      if (cursor.text[cursor.at] !== ':') fail(cursor, '":" expected');
      cursor.at += 1;
      skipBlank(cursor);
      members.push({ name: String(name.value), start: name.start, value: readNode(cursor, depth + 1) });
    });
    return { kind: 'object', members, start, end: cursor.at };
  }
  return readScalar(cursor);
}

/** Reads a whole JSON text (RFC 8259) into a tree with positions. */
export function parseJsonTree(text: string): JsonNode {
  const cursor: Cursor = { text, at: 0 };
  skipBlank(cursor);
  const root = readNode(cursor, 0);
  skipBlank(cursor);
  if (cursor.at < text.length) fail(cursor, 'nothing more expected');
  return root;
}

/** The value of an object's member; `undefined` where there is none. */
export function memberOf(node: JsonNode | undefined, name: string): JsonNode | undefined {
  return node?.kind === 'object' ? node.members.find((member) => member.name === name)?.value : undefined;
}
