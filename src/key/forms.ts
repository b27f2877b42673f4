/** The forms in which a key can stand in text, as bytes to compare with. Pure: no I/O, no clock. */
import { unescapeAll } from './escapes.ts';

export interface Form {
  /** Folded. */
  readonly bytes: Uint8Array;
  /** What may stand inside: a separator after each pair of digits, or after a comma what `skipToNumber` skips. */
  readonly between: 'nothing' | 'pairs' | 'numbers';
  /** How it may begin: four folded bytes each. */
  readonly openings: readonly Uint8Array[];
}

/** A key has at least 16 characters; what is left of one that is all backslashes proves nothing. */
const minFormBytes = 8;

/**
 * What a byte is compared as: letters in either case, and both alphabets of base64, are one. Below 128, so that two
 * make a small index.
 */
export const fold = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte >= 0x41 && byte <= 0x5a) return byte + 0x20;
  if (byte === 0x2d) return 0x2b;
  return byte === 0x5f ? 0x2f : Math.min(byte, 127);
});

/**
 * All forms of a key: as it is, reversed, in base64 at each of three places in a group of three bytes, hexadecimal, and
 * as a list of bytes. Each may be escaped besides, character by character: see `escapes.ts`.
 */
export function formsOf(value: string): Form[] {
  const bytes = Buffer.from(value, 'latin1');
  const pairs = [...bytes].map((byte) => byte.toString(16).padStart(2, '0'));
  const [first, second = ''] = bytes;
  const texts = [bytes, bytes.toReversed()].flatMap((text) => [
    text,
    // Backslashes are taken off escaped text, and what looks like an escape in the key itself is taken for one.
    text.filter((byte) => byte !== 0x5c),
    unescapeAll(text),
  ]);
  const forms = [
    ...texts.map((text) => formOf(text)),
    ...[0, 1, 2].map((before) => formOf(Buffer.from(base64Core(value, before)))),
    formOf(
      Buffer.from(pairs.join('')),
      'pairs',
      ['', ' ', ':', '-'].map((separator) => pairs.slice(0, 3).join(separator)),
    ),
    formOf(
      Buffer.from(bytes.join(',')),
      'numbers',
      [second, ' ', '\t', '\r', '\n', '"'].map((next) => `${first},${next}`),
    ),
  ];
  return forms.filter(
    (form, at) =>
      form.bytes.length >= minFormBytes &&
      forms.findIndex(({ bytes: same }) => Buffer.compare(same, form.bytes) === 0) === at,
  );
}

function formOf(bytes: Uint8Array, between: Form['between'] = 'nothing', openings?: readonly string[]): Form {
  const folded = (text: Uint8Array): Uint8Array => text.map((byte) => fold[byte] ?? 0);
  return {
    bytes: folded(bytes),
    between,
    openings: (openings?.map((text) => Buffer.from(text)) ?? [bytes]).map((text) =>
      folded(text.subarray(0, 4)),
    ),
  };
}

/** The part of the base64 text that is the same whatever stands around the key. */
function base64Core(value: string, before: number): string {
  const text = Buffer.from(`${'\0'.repeat(before)}${value}`, 'latin1').toString('base64');
  return text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + value.length) * 8) / 6));
}
