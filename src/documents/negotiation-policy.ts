/** Which form of a document a request asks for. Pure. */
import { parseAccept } from 'hono/utils/accept';

/**
 * Whether to answer with a page: browsers name `text/html` first. Programs get JSON, and so does `*` alone, which curl
 * and most libraries send.
 *
 * @param accept the value of `Accept` (RFC 9110 section 12.5.1); `undefined` where it was not sent
 */
export function prefersPage(accept: string | undefined): boolean {
  return weightIn(accept, 'text/html') > weightIn(accept, 'application/json');
}

/**
 * Whether to answer with JSON where the usual form is a text for people: programs name `application/json`. `*` alone,
 * which curl sends, names nothing.
 *
 * @param accept as for `prefersPage`
 */
export function namesJson(accept: string | undefined): boolean {
  const people = Math.max(weightIn(accept, 'text/html'), weightIn(accept, 'text/plain'));
  return weightIn(accept, 'application/json') > people;
}

function weightIn(accept: string | undefined, type: string): number {
  return parseAccept(accept ?? '').find((range) => range.type === type)?.q ?? 0;
}
