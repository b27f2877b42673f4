/**
 * The shapes in which a key can stand in text. Pure: no `this`, no I/O, no clock.
 *
 * Two tools for two sizes of text. The *needles* are fixed strings, found in megabytes at memory speed: what a
 * program writes that encodes the whole key one way. The *pattern* also finds what is escaped character by
 * character, in any mixture, and costs more per byte. Every repetition in it is bounded, so that no text can
 * make it slow.
 */

/** Fixed strings that give the key away. */
export function needlesOf(value: string): string[] {
  const bytes = Buffer.from(value, 'latin1');
  const hex = bytes.toString('hex');
  return [
    ...new Set([
      value,
      [...value].reverse().join(''),
      hex,
      hex.toUpperCase(),
      ...base64Cores(value),
      ...base64Cores(value).map((core) => core.replaceAll('+', '-').replaceAll('/', '_')),
      // How JSON shows a Buffer, and how `util.inspect` does.
      [...bytes].join(','),
      hex.replace(/..(?!$)/g, '$& '),
    ]),
  ];
}

/** Characters with which an escape begins. Text without any of them needs no search with the pattern. */
export const escapeCharacters = ['%', '\\', '&'] as const;

/**
 * The source of a regular expression for all shapes; meant for the flags `i` and `g`.
 *
 * @param most of each shape only this many characters, from where it begins: what the whole pattern matches begins
 *   with a match of this
 */
export function patternOf(value: string, most = Number.POSITIVE_INFINITY): string {
  const all = [...Buffer.from(value, 'latin1')];
  const bytes = all.slice(0, most);
  const pairs = bytes.map((byte) => byte.toString(16).padStart(2, '0'));
  return [
    escaped(bytes),
    escaped(all.toReversed().slice(0, most)),
    pairs.join('[ :-]?'),
    bytes.join('\\s{0,8},\\s{0,8}(?:\\\\{0,16}"\\d{1,7}\\\\{0,16}":\\s{0,8})?'),
    ...base64Cores(value).map((core) => [...core].slice(0, most).map(base64Character).join('')),
  ].join('|');
}

/**
 * The part of the base64 text that is the same whatever stands around the key, for each of the three places
 * that the key can have in a group of three bytes.
 */
function base64Cores(value: string): string[] {
  return [0, 1, 2].map((before) => {
    const text = Buffer.from(`${'\0'.repeat(before)}${value}`, 'latin1').toString('base64');
    const firstWhole = Math.ceil((before * 8) / 6);
    const wholeUntil = Math.floor(((before + value.length) * 8) / 6);
    return text.slice(firstWhole, wholeUntil);
  });
}

/** A run of backslashes is tried from its beginning only: from each of them, eight megabytes would take long. */
function escaped(bytes: readonly number[]): string {
  return bytes.map((byte, at) => anyEscape(byte, at === 0 ? '(?<!\\\\)' : '')).join('');
}

/** One character as itself, percent-encoded, or escaped as JSON, JavaScript or HTML do, once or several times. */
function anyEscape(byte: number, runStart: string): string {
  const hex = byte.toString(16).padStart(2, '0');
  const character = String.fromCharCode(byte);
  const forms = [
    literal(character),
    `%(?:25){0,3}${hex}`,
    `${runStart}\\\\{1,32}(?:u00|x)${hex}`,
    `&(?:amp;){0,2}#(?:0{0,5}${byte}|x0{0,5}${hex});`,
  ];
  if (character === '"' || character === '/' || character === "'") {
    forms.push(`${runStart}\\\\{1,32}${character}`);
  }
  // A backslash is written as one, or as two, four, eight: by pairs, so that what follows keeps its own.
  if (character === '\\') forms[0] = `${runStart}(?:(?:\\\\\\\\){1,16}|\\\\)`;
  const name = { '&': 'amp', '<': 'lt', '>': 'gt', '"': 'quot', "'": 'apos' }[character];
  if (name !== undefined) forms.push(`&(?:amp;){0,2}${name};`);
  return `(?:${forms.join('|')})`;
}

/** Both alphabets; a slash may be escaped, as PHP's JSON does; the two special ones may be percent-encoded. */
function base64Character(character: string): string {
  if (character === '+') return '(?:[+-]|%2b|\\\\{1,32}u002b)';
  if (character === '/') return '(?:\\\\{0,32}/|_|%2f|\\\\{1,32}u002f)';
  return character;
}

function literal(character: string): string {
  return character.replace(/[\\^$.*+?()[\]{}|/-]/, '\\$&');
}
