/** How header fields are read that may have come more than once. Pure: no `this`, no I/O, no clock. */

/** Lower-case names. A field that came more than once is a list, in order of arrival. */
export type HeaderFields = Readonly<Record<string, string | readonly string[]>>;

/** A field's value; the lines of a repeated field are joined, as RFC 9110 section 5.3 says. */
export function fieldValue(value: string | readonly string[] | undefined): string | undefined {
  return value === undefined || typeof value === 'string' ? value : value.join(', ');
}

/**
 * A field by a name that came from settings or in a message: only what the record itself has, for every object
 * inherits a `constructor`.
 */
export function ownField<Value>(
  headers: Readonly<Record<string, Value | undefined>>,
  name: string,
): Value | undefined {
  return Object.hasOwn(headers, name) ? headers[name] : undefined;
}

/** The value of a field that may come once; `undefined` where it came more than once. */
export function singleField(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/**
 * A text without the spaces and tabs around it (RFC 9110 section 5.6.3). By index: `/[\t ]+$/` begins again at each
 * blank of a long run, and its time grows with the square of the length.
 */
export function trimBlanks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text, start)) start++;
  while (end > start && isBlank(text, end - 1)) end--;
  return text.slice(start, end);
}

/** The parts of a text between separators outside quoted strings; `undefined` where a quoted string does not end. */
export function splitUnquoted(text: string, separator: string): string[] | undefined {
  const parts: string[] = [];
  let start = 0;
  let isQuoted = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') isQuoted = !isQuoted;
    else if (character === '\\' && isQuoted) at++;
    else if (character === separator && !isQuoted) {
      parts.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return isQuoted ? undefined : [...parts, text.slice(start)];
}

/** The fields without blanks around their values (RFC 9110 section 5.5): undici leaves those at the end. */
export function trimFields(headers: HeaderFields): HeaderFields {
  // Hardly any answer has one, and a copy of all fields costs a read that goes up more than this look.
  let isTrimmed = true;
  for (const name in headers) if (hasBlankEnd(headers[name])) isTrimmed = false;
  if (isTrimmed) return headers;
  const trimmed = Object.entries(headers).map(([name, value]) => [
    name,
    typeof value === 'string' ? trimBlanks(value) : value.map(trimBlanks),
  ]);
  return Object.fromEntries(trimmed);
}

function hasBlankEnd(value: string | readonly string[] = ''): boolean {
  return typeof value === 'string' ? isBlank(value, value.length - 1) : value.some(hasBlankEnd);
}

/** Whether a space or tab stands at this index. */
export function isBlank(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code === 0x20 || code === 0x09;
}

/** Whether a field value is an entity tag, weak or strong (RFC 9110 section 8.8.3). */
export function isEntityTag(value: string): boolean {
  return /^(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/.test(value);
}

/** An entity tag without its mark of weakness: what a weak comparison compares (RFC 9110 section 8.8.3.2). */
export function opaqueTag(tag: string): string {
  return tag.startsWith('W/') ? tag.slice(2) : tag;
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

/** Whether a value of `Content-Type` is that of JSON (RFC 6839 section 3.1). */
export function isJsonType(contentType: string | undefined): boolean {
  return /^application\/(?:json|[^/;,\s]+\+json)[\t ]*(?:;|$)/i.test(contentType ?? '');
}
