/**
 * Reads text character by character without its escapes: percent (once or several times), backslash as JSON and
 * JavaScript write it (nested too), and HTML's references. Pure: no I/O, no clock.
 */

const backslash = 0x5c;
const percent = 0x25;
const ampersand = 0x26;
const semicolon = 0x3b;

/** Whether an escape may begin with this byte. */
export const isEscape = (byte: number): boolean =>
  byte === backslash || byte === percent || byte === ampersand;

/**
 * Whether an escape may begin here, by its first two bytes: in a query every parameter but the first stands behind an
 * ampersand that begins none.
 */
export function mayBeginEscape(text: Uint8Array, at: number): boolean {
  const byte = text[at];
  if (byte === percent) return hexAt(text, at + 1, 1) >= 0;
  if (byte === ampersand) return beginReferences.includes(text[at + 1] ?? 0);
  return byte === backslash;
}

/** Compared byte by byte: a text of ampersands alone is searched for the key as quickly as any other. */
const references = Object.entries({ amp: 0x26, lt: 0x3c, gt: 0x3e, quot: 0x22, apos: 0x27 }).map(
  ([name, code]) => ({ name: Buffer.from(name), code }),
);
/** What may follow the ampersand of a reference. */
const beginReferences = Buffer.from('#AGLQaglq');
/** No reference of a character that a key can have is longer. */
const maxReference = 12;

export class EscapeReader {
  readonly #text: Uint8Array;
  readonly #unescapes: boolean;
  /** Where the next character begins, its escape included. */
  at: number;

  /** @param unescapes false: reads the bytes as they are */
  constructor(text: Uint8Array, at: number, unescapes = true) {
    this.#text = text;
    this.#unescapes = unescapes;
    this.at = at;
  }

  /** The next character's byte, or -1 at the end. Backslashes are left out: how many one becomes is not given here. */
  next(): number {
    for (;;) {
      const byte = this.#text[this.at];
      if (byte === undefined) return -1;
      this.at++;
      if (!this.#unescapes || !isEscape(byte)) return byte;
      const code = this.#afterEscape(byte);
      if (code !== backslash) return code;
    }
  }

  /** What stands between two hexadecimal pairs, if anything. */
  skipSeparator(): void {
    const byte = this.#text[this.at];
    if (byte === 0x20 || byte === 0x3a || byte === 0x2d) this.at++;
  }

  /** What follows a comma in a list of numbers: spaces, and in an object of them the next name, as `"1":`. */
  skipToNumber(): void {
    let isName = false;
    for (let most = 32; most > 0; most--) {
      const before = this.at;
      const byte = this.next();
      if (byte === 0x22) isName = !isName;
      else if (!isName && byte !== 0x3a && byte > 0x20) {
        this.at = before;
        return;
      }
    }
  }

  #afterEscape(byte: number): number {
    const text = this.#text;
    if (byte === percent) {
      // `%25` before two more digits is a percent sign that was encoded once more.
      while (hexAt(text, this.at, 2) === percent && hexAt(text, this.at + 2, 2) >= 0) this.at += 2;
      return this.#take(hexAt(text, this.at, 2), 2) ?? percent;
    }
    if (byte === ampersand) return this.#afterAmpersand();
    while (text[this.at] === backslash) this.at++;
    // `u00` or `x`, and two digits.
    if (text[this.at] === 0x75) return this.#take(hexAt(text, this.at + 1, 4), 5) ?? backslash;
    if (text[this.at] === 0x78) return this.#take(hexAt(text, this.at + 1, 2), 3) ?? backslash;
    return backslash;
  }

  /** A code that can be a key's, and so many bytes are read; else nothing. */
  #take(code: number, bytes: number): number | undefined {
    if (code < 0 || code > 0x7f) return undefined;
    this.at += bytes;
    return code;
  }

  #afterAmpersand(): number {
    for (;;) {
      const code = this.#text[this.at] === 0x23 ? this.#numbered() : this.#named();
      // `&amp;` may begin a reference that was escaped once more.
      if (code !== ampersand) return code < 0 ? ampersand : code;
    }
  }

  /** Reads `amp;` and such like; -1 for anything else. */
  #named(): number {
    // No letter, no name: of ampersands alone each is done with here.
    if (((this.#text[this.at] ?? 0) | 0x20) < 0x61) return -1;
    for (const { name, code } of references) {
      let length = 0;
      while (length < name.length && ((this.#text[this.at + length] ?? 0) | 0x20) === name[length]) length++;
      if (length < name.length || this.#text[this.at + length] !== semicolon) continue;
      this.at += length + 1;
      return code;
    }
    return -1;
  }

  /** Reads `#119;` or `#x77;`; -1 for anything else. */
  #numbered(): number {
    const isHex = ((this.#text[this.at + 1] ?? 0) | 0x20) === 0x78;
    const from = this.at + (isHex ? 2 : 1);
    const base = isHex ? 16 : 10;
    let code = 0;
    for (let place = from; place < this.at + maxReference; place++) {
      const byte = this.#text[place] ?? 0;
      if (byte === semicolon && place > from) {
        this.at = place + 1;
        return code;
      }
      const digit = hexDigit(byte);
      if (digit < 0 || digit >= base) return -1;
      code = code * base + digit;
    }
    return -1;
  }
}

/** The value of so many hexadecimal digits, or -1 where they are none. */
function hexAt(text: Uint8Array, at: number, digits: number): number {
  let value = 0;
  for (let place = at; place < at + digits; place++) {
    const digit = hexDigit(text[place] ?? 0);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

/** A whole text without its escapes. */
export function unescapeAll(text: Uint8Array): Uint8Array {
  const reader = new EscapeReader(text, 0);
  const plain: number[] = [];
  for (let byte = reader.next(); byte >= 0; byte = reader.next()) plain.push(byte);
  return Uint8Array.from(plain);
}
