/** The entity tag an answer leaves with (RFC 9110 section 8.8.3). Pure: no `this`, no I/O, no clock. */
import { hash } from 'node:crypto';
import { isEntityTag } from '../http/fields.ts';
import { bufferOf, type Payload } from '../http/payload.ts';
import type { ContentCoding } from './encoding.ts';

/**
 * The upstream's own tag where it gives one; else a strong one made from the body, so that browsers can
 * revalidate. A malformed tag, or one that came more than once, is ignored.
 */
export function entityTagOf(upstreamTag: string | readonly string[] | undefined, body: Payload): string {
  if (typeof upstreamTag === 'string' && isEntityTag(upstreamTag)) return upstreamTag;
  return `"${hash('sha256', bufferOf(body), 'base64url').slice(0, 27)}"`;
}

/** The tag of a coded body: another representation, so another tag (RFC 9110 section 8.8.3.3). */
export function codedEntityTag(tag: string, coding: ContentCoding): string {
  return coding === 'identity' ? tag : `${tag.slice(0, -1)}-${coding}"`;
}
