/** Which form of a document a request asks for. Media types are compared without case (RFC 9110 section 8.3.1). Pure. */
import { parseAccept } from 'hono/utils/accept';

/**
 * Whether to answer with a page: browsers name `text/html` first. Programs get JSON, and so does `*` alone, which curl
 * and most libraries send.
 *
 * @param accept the value of `Accept` (RFC 9110 section 12.5.1); `undefined` where it was not sent
 */
export function prefersPage(accept: string | undefined): boolean {
  return (
    weightOf(accept, ['text/html', 'text/*', '*/*']) >
    weightOf(accept, ['application/json', 'application/*', '*/*'])
  );
}

/**
 * Whether to answer with JSON where the usual form is a text for people: programs name a type of JSON. `*` alone, which
 * curl sends, names nothing.
 *
 * @param accept as for `prefersPage`
 */
export function namesJson(accept: string | undefined): boolean {
  const heaviest = (...types: readonly string[]): number =>
    Math.max(...types.map((type) => weightOf(accept, [type])));
  return heaviest('application/json', 'application/problem+json') > heaviest('text/html', 'text/plain');
}

/** The weight of the first of these ranges that is there: the most specific one counts, so it comes first. */
function weightOf(accept: string | undefined, ranges: readonly string[]): number {
  const sent = parseAccept(accept?.toLowerCase() ?? '');
  for (const range of ranges) {
    const found = sent.find(({ type }) => type === range);
    if (found !== undefined) return found.q;
  }
  return 0;
}
