/**
 * Reads a Cache-Control field (RFC 9111 section 5.2). Pure: no `this`, no I/O, no clock.
 *
 * A restriction counts even where it is malformed; a permission counts only where it is well-formed.
 */
import { fieldValue, trimBlanks } from '../http/fields.ts';

interface Directive {
  /** The argument as it came, without its quotes; `undefined` where there is none. */
  readonly argument: string | undefined;
  readonly quoted: boolean;
  /** The name is followed by something that is no argument. */
  readonly malformed: boolean;
  /** Came again with another argument: neither can be trusted (RFC 9111 section 4.2.1). */
  readonly contradicted: boolean;
}

/** Directives by lower-case name, and whether the field could be read to its end. */
export interface Directives {
  readonly byName: ReadonlyMap<string, Directive>;
  /** A quote never closes and may hide any directive: no permission of the field may be used. */
  readonly broken: boolean;
}

/** The largest number of seconds that is distinguished; more counts as this much (RFC 9111 section 1.2.2). */
export const maxDeltaSeconds = 2_147_483_648;

/** Matches everywhere: nothing at all is an empty member. */
const member =
  /[\t ]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([!#$%&'*+.^_`|~0-9A-Za-z-]*)))?)?/y;

const words = /[!#$%&'*+.^_`|~0-9a-z-]+/g;

/** Restrictions: they count wherever they are named, even behind a member where only a comma may follow. */
const restricting: ReadonlySet<string> = new Set([
  'no-cache',
  'no-store',
  'no-transform',
  'private',
  'must-revalidate',
  'proxy-revalidate',
]);

/** Reads the field's value; repeated field lines count as one list. */
export function parseCacheControl(field: string | readonly string[] | undefined): Directives {
  const text = fieldValue(field) ?? '';
  const byName = new Map<string, Directive>();
  const note = (name: string, directive: Directive): void => {
    const before = byName.get(name);
    const { argument, malformed } = directive;
    const same = before === undefined || (before.argument === argument && before.malformed === malformed);
    byName.set(name, same ? (before ?? directive) : { ...before, contradicted: true });
  };
  let broken = false;
  let at = 0;
  while (at < text.length) {
    member.lastIndex = at;
    const found = member.exec(text);
    const end = member.lastIndex;
    const rest = restOfMember(text, end);
    if (rest.unclosed) broken = true;
    const name = found?.[1]?.toLowerCase();
    if (name !== undefined) {
      const argument = found?.[2] ?? found?.[3];
      const quoted = found?.[2] !== undefined;
      note(name, { argument, quoted, malformed: rest.junk, contradicted: false });
    }
    // As in `max-age=60; private`.
    for (const word of text.slice(end, rest.next).toLowerCase().match(words) ?? []) {
      if (restricting.has(word)) {
        note(word, { argument: undefined, quoted: false, malformed: true, contradicted: false });
      }
    }
    at = rest.next;
  }
  return { byName, broken };
}

/** Finds the next comma outside quotes, and whether anything but space comes before it. */
function restOfMember(text: string, from: number): { next: number; junk: boolean; unclosed: boolean } {
  let at = from;
  let junk = false;
  while (at < text.length && text[at] !== ',') {
    if (text[at] === '"') {
      at += 1;
      while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
      if (at >= text.length) return { next: text.length, junk: true, unclosed: true };
      junk = true;
    } else if (text[at] !== ' ' && text[at] !== '\t') {
      junk = true;
    }
    at += 1;
  }
  return { next: at + 1, junk, unclosed: false };
}

/** Whether the directive is present, well-formed or not: for restrictions. */
export function hasDirective(directives: Directives, name: string): boolean {
  return directives.byName.has(name);
}

/** Whether the directive is present, without an argument and well-formed: for permissions. */
export function hasBareDirective(directives: Directives, name: string): boolean {
  const found = directives.byName.get(name);
  return found !== undefined && found.argument === undefined && !found.malformed && !found.contradicted;
}

/** Reads an argument in seconds: `undefined` where the directive is absent, `invalid` where it can't be trusted. */
export function directiveSeconds(directives: Directives, name: string): number | 'invalid' | undefined {
  const found = directives.byName.get(name);
  if (found === undefined) return undefined;
  if (found.malformed || found.contradicted || found.argument === undefined) return 'invalid';
  // Senders must not quote it, recipients ought to accept both forms (RFC 9111 section 5.2).
  const digits = found.quoted ? found.argument.replace(/\\(.)/g, '$1') : found.argument;
  return /^\d+$/.test(digits) ? Math.min(Number(digits), maxDeltaSeconds) : 'invalid';
}

/**
 * Reads the field names that limit `no-cache` or `private` (RFC 9111 sections 5.2.2.4 and 5.2.2.7), in lower
 * case. `all` where the directive concerns the whole answer, or its argument is anything but a list of field names:
 * then it restricts as the bare directive does.
 */
export function directiveFields(directives: Directives, name: string): readonly string[] | 'all' | undefined {
  const found = directives.byName.get(name);
  if (found === undefined) return undefined;
  if (!found.quoted || found.argument === undefined || found.malformed || found.contradicted) return 'all';
  // Space belongs around commas alone (RFC 9110 section 5.6.1).
  if (/^[\t ]|[\t ]$/.test(found.argument)) return 'all';
  const names = found.argument
    .split(',')
    .map((part) => trimBlanks(part).toLowerCase())
    .filter((part) => part !== '');
  return names.length > 0 && names.every((part) => /^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(part)) ? names : 'all';
}
