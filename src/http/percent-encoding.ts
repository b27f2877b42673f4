/** Percent-encoding (RFC 3986 section 2.1), decoded leniently: a caller's text must never throw. Pure. */

/**
 * Decodes each valid `%XX` once, byte by byte as Latin-1, as Node gives targets and fields; every other character stays as it
 * is. Without an expression: it would call back for each `%XX`, and a stranger can send thousands.
 */
function decodePercent(text: string): string {
  const bytes = Buffer.from(text, 'latin1');
  let written = 0;
  for (let read = 0; read < bytes.length; written++) {
    const [high, low] = [
      hexDigits[bytes[read + 1] ?? 0] as number,
      hexDigits[bytes[read + 2] ?? 0] as number,
    ];
    const isEncoded = bytes[read] === percent && high >= 0 && low >= 0;
    bytes[written] = isEncoded ? high * 16 + low : (bytes[read] as number);
    read += isEncoded ? 3 : 1;
  }
  return bytes.toString('latin1', 0, written);
}

const percent = 0x25;
/** By a byte: the value of a hexadecimal digit; -1 for any other. */
export const hexDigits = Int8Array.from({ length: 256 }, (_, byte) =>
  '0123456789abcdef'.indexOf(String.fromCharCode(byte).toLowerCase()),
);

/** A URL inside a URL inside a URL is encoded three times. Each round costs time, and it is a caller's text. */
const maxRounds = 5;

/** The text as it came, decoded once, and again until nothing changes, at most five times. */
export function decodings(text: string): readonly string[] {
  const readings = [text];
  let last = text;
  for (let round = 0; round < maxRounds && last.includes('%'); round++) {
    const decoded = decodePercent(last);
    if (decoded === last) break;
    readings.push(decoded);
    last = decoded;
  }
  return readings;
}
