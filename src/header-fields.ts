/** How header fields are read that may have come more than once. Pure: no `this`, no I/O, no clock. */

/** A field's value; the lines of a repeated field are joined, as RFC 9110 section 5.3 says. */
export function fieldValue(value: string | readonly string[] | undefined): string | undefined {
  return value === undefined || typeof value === 'string' ? value : value.join(', ');
}

/** The value of a field that may come once; `undefined` where it came more than once. */
export function singleField(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

const none: ReadonlySet<string> = new Set();

/**
 * The options of a `Connection` field in lower case (RFC 9110 section 7.6.1). A field of such a name is meant for the recipient of this one
 * message and must not be passed on.
 */
export function connectionOptions(field: string | readonly string[] | undefined): ReadonlySet<string> {
  // What nearly every message says names no field.
  if (field === undefined || field === 'keep-alive' || field === 'close') return none;
  const text = fieldValue(field) ?? '';
  const options = text.split(',').map((option) => option.trim().toLowerCase());
  return new Set(options.filter((option) => option !== ''));
}
