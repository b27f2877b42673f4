/**
 * How a stored answer is asked about again, and what a 304 makes of it (RFC 9111 sections 3.2, 4.3).
 * Pure: no `this`, no I/O, no clock.
 */

import type { Answer } from '../exchange/exchange.ts';
import { connectionOptions, type HeaderFields, isEntityTag, opaqueTag } from '../http/fields.ts';
import { bodyFields, connectionFields } from '../http/header-table.ts';

/** The fields to send: both where both are known (RFC 9111 section 4.3.1); `undefined` where there are none. */
export function validatorsOf(headers: HeaderFields): Readonly<Record<string, string>> | undefined {
  const etag = headers['etag'];
  const modified = headers['last-modified'];
  const validators: Record<string, string> = {};
  // Sent as received, but only what reads as one tag: anything else would be a list, or nonsense.
  if (typeof etag === 'string' && isEntityTag(etag)) validators['if-none-match'] = etag;
  if (typeof modified === 'string') validators['if-modified-since'] = modified;
  return Object.keys(validators).length === 0 ? undefined : validators;
}

/**
 * Whether a 304 speaks of this stored answer. It must come from the same key, for another key may see another
 * body behind the same date, and must not name another tag, or another date of an answer that has no tag
 * (RFC 9111 section 4.3.4): the stored body would keep the new date, and each later 304 would confirm it again.
 */
export function confirms(notModified: Answer, stored: Answer): boolean {
  if (notModified.generation !== stored.generation) return false;
  const named = notModified.headers['etag'];
  const known = stored.headers['etag'];
  if (known === undefined) {
    const date = notModified.headers['last-modified'];
    return date === undefined || date === stored.headers['last-modified'];
  }
  // The upstream was asked about the tag, and the date did not count (RFC 9110 section 13.1.3).
  if (named === undefined) return true;
  return typeof named === 'string' && typeof known === 'string' && opaqueTag(named) === opaqueTag(known);
}

/**
 * Whether an error may be about the validators and not about the read. A 429 is not, nor are the errors of a gateway
 * whose upstream is down.
 */
export function mayBeDueToValidators(status: number): boolean {
  return status >= 400 && status !== 429 && (status < 502 || status > 504);
}

/**
 * What says how the stored bytes are to be read stays as it came with them (RFC 9111 section 3.2), and what speaks of one
 * connection is not kept (RFC 9110 section 7.6.1). A language says nothing of how they are read.
 */
function isRenewed(name: string): boolean {
  return name === 'content-language' || !(bodyFields.has(name) || connectionFields.has(name));
}

/** The stored answer with the fields and the times of the 304 that confirmed it. */
export function renewed(stored: Answer, notModified: Answer): Answer {
  const headers: Record<string, string | readonly string[]> = { ...stored.headers };
  // These described the former exchange. Left in, an answer confirmed just now would be as old as before.
  delete headers['age'];
  delete headers['date'];
  for (const [name, value] of Object.entries(notModified.headers)) {
    if (isRenewed(name)) headers[name] = value;
  }
  const connection = [stored, notModified].flatMap(({ headers: { connection: field } }) => [
    ...connectionOptions(field),
  ]);
  // What either of them names must not be passed on with the renewed answer.
  if (connection.length > 0) headers['connection'] = [...new Set(connection)];
  return {
    ...stored,
    headers,
    sentMs: notModified.sentMs,
    receivedMs: notModified.receivedMs,
    receivedAt: notModified.receivedAt,
    derived: undefined,
  };
}
