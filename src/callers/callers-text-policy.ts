/**
 * Changes one entry in the text of a callers file and leaves every other byte as it is: order, spacing, and
 * members this version does not know. Pure: no `this`, no I/O, no clock.
 */
import { type JsonArray, type JsonNode, type JsonObject, memberOf, parseJsonTree } from './json-tree.ts';

/** The file's text can't be changed safely; the message says what stands in the way. */
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
  /** Other ways to be this caller, as `jwt`. */
  readonly otherWays: readonly string[];
}

export const emptyCallersText = '{\n  "callers": []\n}\n';

/** Spaces at the beginning of the line on which this offset lies. */
function indentAt(text: string, offset: number): string {
  const line = text.slice(text.lastIndexOf('\n', offset - 1) + 1, offset);
  return /^[ \t]*/.exec(line)?.[0] ?? '';
}

function replace(text: string, start: number, end: number, by: string): string {
  return text.slice(0, start) + by + text.slice(end);
}

/** Puts something behind the last of a list or object, on a line of its own where the others have one. */
function append(
  text: string,
  inside: JsonArray | JsonObject,
  last: number | undefined,
  added: string,
): string {
  const outer = indentAt(text, inside.start);
  if (last === undefined) {
    const inner = `${outer}  `;
    const block = `\n${inner}${added.replaceAll('\n', `\n${inner}`)}\n${outer}`;
    return replace(text, inside.start + 1, inside.end - 1, block);
  }
  const first = inside.kind === 'array' ? inside.items[0]?.start : inside.members[0]?.start;
  const isOneLine = !text.slice(inside.start, first).includes('\n');
  if (isOneLine) return replace(text, last, last, `, ${added.replaceAll(/\n\s*/g, ' ')}`);
  const inner = indentAt(text, first ?? inside.start);
  return replace(text, last, last, `,\n${inner}${added.replaceAll('\n', `\n${inner}`)}`);
}

function removeItem(text: string, list: JsonArray, index: number): string {
  const item = list.items[index];
  const before = list.items[index - 1];
  const after = list.items[index + 1];
  if (item === undefined) return text;
  if (before !== undefined) return replace(text, before.end, item.end, '');
  if (after !== undefined) return replace(text, item.start, after.start, '');
  return replace(text, list.start + 1, list.end - 1, '');
}

function tokenText({ sha256, expires }: NewToken): string {
  const until = expires === undefined ? '' : `, "expires": ${JSON.stringify(expires)}`;
  return `{ "sha256": ${JSON.stringify(sha256)}${until} }`;
}

function callersOf(text: string): JsonArray {
  const callers = memberOf(parseJsonTree(text), 'callers');
  if (callers?.kind === 'array') return callers;
  throw new CallersTextError('the file has no list of callers');
}

function textOf(node: JsonNode | undefined): string | undefined {
  return node?.kind === 'string' ? String(node.value) : undefined;
}

function findCaller(callers: JsonArray, name: string): JsonObject | undefined {
  const found = callers.items.filter((item) => textOf(memberOf(item, 'name')) === name);
  if (found.length > 1) throw new CallersTextError(`the file has more than one caller named ${name}`);
  return found[0]?.kind === 'object' ? found[0] : undefined;
}

function tokensOf(caller: JsonObject): JsonArray | undefined {
  const tokens = memberOf(caller, 'tokens');
  if (tokens === undefined || tokens.kind === 'array') return tokens;
  throw new CallersTextError('the tokens of this caller are not a list');
}

/** Adds a token as the newest of the caller; makes the caller where there is none. */
export function addToken(
  text: string,
  name: string,
  token: NewToken,
  operations: readonly string[],
): { readonly text: string; readonly isNewCaller: boolean } {
  const callers = callersOf(text);
  const caller = findCaller(callers, name);
  if (caller === undefined) {
    const added = [
      '{',
      `  "name": ${JSON.stringify(name)},`,
      `  "tokens": [${tokenText(token)}],`,
      `  "operations": [${operations.map((operation) => JSON.stringify(operation)).join(', ')}]`,
      '}',
    ].join('\n');
    return { text: append(text, callers, callers.items.at(-1)?.end, added), isNewCaller: true };
  }
  const tokens = tokensOf(caller);
  const changed =
    tokens === undefined
      ? append(text, caller, caller.members.at(-1)?.value.end, `"tokens": [${tokenText(token)}]`)
      : tokens.items.length === 0
        ? replace(text, tokens.start, tokens.end, `[${tokenText(token)}]`)
        : append(text, tokens, tokens.items.at(-1)?.end, tokenText(token));
  return { text: changed, isNewCaller: false };
}

/** Removes those tokens of a caller whose digests are named; the caller and what was granted to it stay. */
export function removeTokens(text: string, name: string, digests: ReadonlySet<string>): string {
  let changed = text;
  for (;;) {
    const caller = findCaller(callersOf(changed), name);
    const tokens = caller === undefined ? undefined : tokensOf(caller);
    const index = (tokens?.items ?? []).findIndex((item) =>
      digests.has((textOf(memberOf(item, 'sha256')) ?? '').toLowerCase()),
    );
    if (tokens === undefined || index === -1) return changed;
    changed = removeItem(changed, tokens, index);
  }
}

/** What the file says of callers and their tokens, as far as it can be read. */
export function listCallers(text: string): ListedCaller[] {
  return callersOf(text).items.map((item) => {
    const tokens = memberOf(item, 'tokens');
    return {
      name: textOf(memberOf(item, 'name')) ?? '(no name)',
      tokens: (tokens?.kind === 'array' ? tokens.items : []).map((token) => ({
        sha256: (textOf(memberOf(token, 'sha256')) ?? '').toLowerCase(),
        expires: textOf(memberOf(token, 'expires')),
      })),
      otherWays: ['jwt', 'fly', 'anonymous'].filter((way) => memberOf(item, way) !== undefined),
    };
  });
}
