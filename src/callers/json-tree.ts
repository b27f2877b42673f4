/**
 * JSON with positions, by jsonc-parser: a member written twice is visible (RFC 8259 section 4 leaves its meaning
 * open, and a grant must not have two), and problems have a line. Pure: no `this`, no I/O, no clock.
 */
import { getLocation, type Node, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';

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
