/**
 * Changes one entry in the text of a callers file, by jsonc-parser, and leaves every other byte as it is: order,
 * spacing, and members this version does not know. Pure: no `this`, no I/O, no clock.
 */
import { applyEdits, type JSONPath, modify } from 'jsonc-parser';
import { writtenLimit } from './bucket.ts';
import { defaultOperations, readLimits } from './callers-file.ts';
import { itemsOf, JsonCheck, type JsonNode, memberOf, membersOf, parseJsonTree, textOf } from './json.ts';

/** The file's text can't be changed safely; the message says why. */
export class CallersTextError extends Error {
  override readonly name = 'CallersTextError';
}

export interface NewToken {
  readonly sha256: string;
  readonly expires?: string;
}

export interface ListedToken {
  /** Lower case; empty where the file has none. */
  readonly sha256: string;
  readonly expires: string | undefined;
}

export interface ListedCaller {
  readonly name: string;
  readonly tokens: readonly ListedToken[];
  readonly operations: readonly string[];
  /** As written; `undefined` where the file leaves it to the gateway. */
  readonly workspaces: readonly string[] | undefined;
  /** As `5000/1d`, also one by `limit`. */
  readonly limits: readonly string[];
  readonly weight: number;
  /** False where what limits and grants refuse passes all the same. */
  readonly enforce: boolean;
  /** Other ways to be this caller, as `jwt`. */
  readonly otherWays: readonly string[];
}

export const emptyCallersText = '{\n  "callers": []\n}\n';

/** What the file says of callers and their tokens, as far as it can be read. */
export function listCallers(text: string): ListedCaller[] {
  return callersOf(text).map((caller) => ({
    name: textOf(memberOf(caller, 'name')) ?? '(no name)',
    tokens: itemsOf(memberOf(caller, 'tokens')).map((token) => ({
      sha256: digestIn(token),
      expires: textOf(memberOf(token, 'expires')),
    })),
    operations: operationsOf(caller),
    workspaces: workspacesOf(caller),
    limits: limitsOf(caller),
    enforce: memberOf(caller, 'enforce')?.value !== false,
    weight: new JsonCheck().number(memberOf(caller, 'weight'), '', 0.01, 100) ?? 1,
    otherWays: ['jwt', 'fly', 'anonymous'].filter((way) => memberOf(caller, way) !== undefined),
  }));
}

/** The caller of this name. @throws CallersTextError where the file has more than one */
export function findCaller(text: string, name: string): ListedCaller | undefined {
  const index = indexOf(text, name);
  return index === -1 ? undefined : listCallers(text)[index];
}

/** Adds a caller with one token, as the last of the file. */
export function addCaller(
  text: string,
  name: string,
  token: NewToken,
  operations: readonly string[],
  workspaces?: readonly string[],
): string {
  const members = { name, tokens: [token], operations, ...(workspaces && { workspaces }) };
  const lines = Object.entries(members).map(([member, value]) => `  "${member}": ${inOneLine(value)}`);
  return append(text, ['callers'], callersOf(text), `{\n${lines.join(',\n')}\n}`);
}

/** Adds a token as the newest of a caller that exists. */
export function addToken(text: string, name: string, token: NewToken): string {
  const index = indexOf(text, name);
  const tokens = memberOf(callersOf(text)[index], 'tokens');
  if (tokens !== undefined && tokens.type !== 'array') {
    throw new CallersTextError('the tokens of this caller are not a list');
  }
  const path = ['callers', index, 'tokens'];
  return tokens === undefined
    ? change(text, path, `[${inOneLine(token)}]`)
    : append(text, path, itemsOf(tokens), inOneLine(token));
}

/** Removes those tokens of a caller whose digests are named; the caller and its operations stay. */
export function removeTokens(text: string, name: string, digests: ReadonlySet<string>): string {
  const tokens = itemsOf(memberOf(callersOf(text)[indexOf(text, name)], 'tokens'));
  const index = tokens.findIndex((token) => digests.has(digestIn(token)));
  return index === -1 ? text : removeTokens(removeItem(text, tokens, index), name, digests);
}

/** Removes a caller with everything that the file says of it. */
export function removeCaller(text: string, name: string): string {
  return removeItem(text, callersOf(text), indexOf(text, name));
}

export interface SettableMembers {
  readonly operations?: readonly string[] | undefined;
  readonly workspaces?: readonly string[] | undefined;
  /** As `5000/1d`; empty takes every limit away, also one by `limit`. */
  readonly limits?: readonly string[] | undefined;
  readonly weight?: number | undefined;
}

/** Sets members of a caller that exists; what is left out stays. */
export function setMembers(text: string, name: string, members: SettableMembers): string {
  const { limits, ...others } = members;
  let changed = text;
  for (const [member, value] of Object.entries(others)) {
    if (value === undefined) continue;
    changed = change(changed, ['callers', indexOf(changed, name), member], inOneLine(value));
  }
  if (limits === undefined) return changed;
  // A caller has one of both.
  changed = removeMember(changed, name, 'limit');
  if (limits.length === 0) return removeMember(changed, name, 'limits');
  return change(changed, ['callers', indexOf(changed, name), 'limits'], inOneLine(limits));
}

/** Removes a member with the comma that it no longer needs. A caller has others: its name at least. */
function removeMember(text: string, name: string, member: string): string {
  const properties = callersOf(text)[indexOf(text, name)]?.children ?? [];
  const index = properties.findIndex(({ children }) => children?.[0]?.value === member);
  return index === -1 ? text : removeItem(text, properties, index);
}

function callersOf(text: string): readonly JsonNode[] {
  const callers = memberOf(parseJsonTree(text), 'callers');
  if (callers?.type === 'array') return itemsOf(callers);
  throw new CallersTextError('the file has no list of callers');
}

function indexOf(text: string, name: string): number {
  const names = callersOf(text).map((caller) => textOf(memberOf(caller, 'name')));
  const index = names.indexOf(name);
  if (index === names.lastIndexOf(name)) return index;
  throw new CallersTextError(`the file has more than one caller named ${name}`);
}

function digestIn(token: JsonNode): string {
  return (textOf(memberOf(token, 'sha256')) ?? '').toLowerCase();
}

function operationsOf(caller: JsonNode): readonly string[] {
  const operations = memberOf(caller, 'operations');
  if (operations === undefined) return defaultOperations;
  return itemsOf(operations).flatMap((operation) => textOf(operation) ?? []);
}

function workspacesOf(caller: JsonNode): readonly string[] | undefined {
  const workspaces = memberOf(caller, 'workspaces');
  return workspaces && itemsOf(workspaces).flatMap((workspace) => textOf(workspace) ?? []);
}

function limitsOf(caller: JsonNode): readonly string[] {
  const members = new Map(membersOf(caller).map(({ name, value }) => [name, value]));
  return readLimits(new JsonCheck(), members, '').map(writtenLimit);
}

/** A value with blanks where people put them. Names, digests, dates and operations have no blank of their own. */
function inOneLine(value: unknown): string {
  return JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, ' ').replaceAll('[ ', '[').replaceAll(' ]', ']');
}

/**
 * Removes an item with the comma that it no longer needs. By hand: the library takes a character too many or too few
 * where the last item and its bracket stand on one line.
 */
function removeItem(text: string, items: readonly JsonNode[], index: number): string {
  const item = items[index];
  const before = items[index - 1];
  const after = items[index + 1];
  if (item === undefined) return text;
  const start = before === undefined ? item.offset : endOf(before);
  const end = before === undefined && after !== undefined ? after.offset : endOf(item);
  return text.slice(0, start) + text.slice(end);
}

function endOf({ offset, length }: JsonNode): number {
  return offset + length;
}

function append(text: string, path: JSONPath, items: readonly JsonNode[], added: string): string {
  if (items.length > 0) return change(text, [...path, -1], added);
  return change(text, path, added.includes('\n') ? `[\n  ${indented(added, '  ')}\n]` : `[${added}]`);
}

/**
 * Sets a value, or adds it behind the last of its object or list: on a line of its own where that one ends its
 * line. The library could do that, but it lays out the whole line anew.
 *
 * @param value JSON, laid out as at the beginning of a line
 */
function change(text: string, path: JSONPath, value: string): string {
  // The library says where. What it would put there ends with this placeholder of one character.
  const edits = modify(text, path, 0, {});
  return applyEdits(
    text,
    edits.map(({ offset, length, content }) => {
      const lead = content.slice(0, -1);
      const line = text.slice(text.lastIndexOf('\n', offset - 1) + 1, offset);
      const indent = /^[ \t]*/.exec(line)?.[0] ?? '';
      const onOwnLine = `\n${indent}${lead.slice(1)}${indented(value, indent)}`;
      const onSameLine = ` ${lead.slice(1)}${value.replaceAll(/\n\s*/g, ' ')}`;
      if (!lead.startsWith(',')) return { offset, length, content: lead + indented(value, indent) };
      const endsLine = /^[ \t]*\r?\n/.test(text.slice(offset));
      return { offset, length, content: `,${endsLine ? onOwnLine : onSameLine}` };
    }),
  );
}

function indented(value: string, indent: string): string {
  return value.replaceAll('\n', `\n${indent}`);
}
