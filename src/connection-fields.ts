/** Fields that belong to one connection (RFC 9110 section 7.6.1). Pure: no `this`, no I/O, no clock. */

const none: ReadonlySet<string> = new Set();

/**
 * The options of a `Connection` field in lower case. A field of such a name is meant for the recipient of this one
 * message and must not be passed on.
 */
export function connectionOptions(field: string | readonly string[] | undefined): ReadonlySet<string> {
  // What nearly every message says names no field.
  if (field === undefined || field === 'keep-alive' || field === 'close') return none;
  const text = typeof field === 'string' ? field : field.join(',');
  const options = text.split(',').map((option) => option.trim().toLowerCase());
  return new Set(options.filter((option) => option !== ''));
}
