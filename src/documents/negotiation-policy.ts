/** Which form of a document a request asks for. Pure. */
import { parseAccept } from 'hono/utils/accept';

/**
 * Whether to answer with a page: browsers name `text/html` first. Programs get JSON, and so does `*` alone, which curl
 * and most libraries send.
 *
 * @param accept the value of `Accept` (RFC 9110 section 12.5.1); `undefined` where it was not sent
 */
export function prefersPage(accept: string | undefined): boolean {
  const ranges = parseAccept(accept ?? '');
  const weightOf = (type: string): number => ranges.find((range) => range.type === type)?.q ?? 0;
  return weightOf('text/html') > weightOf('application/json');
}
