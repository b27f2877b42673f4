/**
 * The reads that callers may make, and how a raw request target becomes one of them. Pure.
 *
 * The target is matched as it came, byte for byte, never decoded, normalised or parsed as a URL: a proxy
 * that decides on other bytes than those it routes can be bypassed.
 */
import { decodings } from './http/percent-encoding.ts';

export interface Operation {
  readonly name: string;
  /** The specified path below the base address; `:name` stands for one segment. */
  readonly path: string;
  /** What it is for. */
  readonly purpose: string;
}

/** The operations of the specification. `UPSTREAM_READS` adds others. */
export const specifiedOperations = [
  {
    name: 'list-accounts',
    path: '/analytics/accounts/',
    purpose: 'The accounts connected to the workspace. The recommended first call: it verifies the key.',
  },
  {
    name: 'list-api-keys',
    path: '/users/api-keys/',
    purpose: "The API keys of the key's holder, without their secret values. A 200 confirms the key.",
  },
] as const satisfies readonly Operation[];

/** The operations of `UPSTREAM_READS`: each is named by its pattern as written. */
export function configuredOperations(patterns: readonly string[]): Operation[] {
  return patterns.map((pattern) => ({
    name: pattern,
    path: pattern,
    purpose: 'A read that this gateway allows besides.',
  }));
}

/** The reads that callers may make: those of the upstream's specification, and those of `UPSTREAM_READS`. */
export function operationsOf(config: { readonly UPSTREAM_READS: readonly string[] }): readonly Operation[] {
  return [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
}

export interface OperationMatch {
  readonly operation: Operation;
  /** The path to ask the upstream for, below the base address. */
  readonly path: string;
}

/** One segment as `UPSTREAM_READS` promises it: unreserved characters only (RFC 3986 section 2.3), no dots alone. */
export const segmentPattern = '(?!\\.{1,2}(?:/|$))[A-Za-z0-9._~-]+';

/**
 * Prepares the look-up of a path below `/api`.
 *
 * @param operations the first that fits wins, so literal ones should come first
 * @returns a function from a raw path (no query) to what it means, or `undefined`
 */
export function matchOperations(
  operations: readonly Operation[],
): (path: string) => OperationMatch | undefined {
  // A list and not a map: to compare with the few there are is cheaper than to find a text that was just received.
  const literals: { spelling: string; match: OperationMatch }[] = [];
  const patterns: { expression: RegExp; operation: Operation; trailingSlash: boolean }[] = [];
  for (const operation of operations) {
    const bare = operation.path.replace(/\/$/, '');
    if (operation.path.includes('/:')) {
      const expression = new RegExp(
        `^${bare
          .split('/')
          .map((part) => (part.startsWith(':') ? segmentPattern : part.replace(/[.~-]/g, '\\$&')))
          .join('/')}/?$`,
      );
      patterns.push({ expression, operation, trailingSlash: operation.path.endsWith('/') });
    } else {
      const match = { operation, path: operation.path };
      literals.push({ spelling: bare, match }, { spelling: `${bare}/`, match });
    }
  }
  return (path) => {
    for (const { spelling, match } of literals) if (spelling === path) return match;
    const found = patterns.find(({ expression }) => expression.test(path));
    if (found === undefined) return undefined;
    const bare = path.replace(/\/$/, '');
    return { operation: found.operation, path: found.trailingSlash ? `${bare}/` : bare };
  };
}

/** Names of parameters that would put a key into a URL, in any case and with `-` or `_`. */
const keyParameter = /^(?:x[-_]?)?api[-_]?key$/i;

/**
 * Characters a query may have unescaped (RFC 3986 section 3.4), and what browsers leave unescaped besides. They stand for
 * themselves; `+` and `%` do not.
 */
const unescaped = 'A-Za-z0-9\\-._~!$&\'()*,;=:@/?[\\]|^`{}"<>\\\\';
const plainQuery = new RegExp(`^[${unescaped}+%]*$`);

/** Fits every query with something wrong in it, so that the names of most queries need no reading. */
const mayBeWrong = new RegExp(`[^${unescaped}]|api[-_]?key`, 'i');

/**
 * What is wrong with a query (without its `?`), or `undefined`. It goes upstream in its exact bytes, so only what
 * may stand in a request line passes; and a name is looked at in every way it can be decoded, so that `api%5Fkey`
 * is found too.
 */
export function problemOfQuery(query: string): string | undefined {
  if (query === '' || !mayBeWrong.test(query)) return undefined;
  if (!plainQuery.test(query)) return 'The query has a character that must be percent-encoded.';
  for (const parameter of query.split(/[&;]/)) {
    const equals = parameter.indexOf('=');
    const name = equals === -1 ? parameter : parameter.slice(0, equals);
    if (keyParameter.test(decodeName(name))) {
      return 'A key is never sent in the URL: remove the parameter that carries one, and send your token in a header.';
    }
  }
  return undefined;
}

/** A parameter's name decoded until nothing changes, without blanks and brackets; bounded, for it is a caller's text. */
function decodeName(name: string): string {
  const decoded = decodings(name.replaceAll('+', ' ')).at(-1) ?? '';
  const bracket = decoded.indexOf('[');
  return (bracket === -1 ? decoded : decoded.slice(0, bracket)).replace(/[\s\0]/g, '');
}
