/** Percent-encoding (RFC 3986 section 2.1), decoded leniently: a caller's text must never throw. Pure. */

/** Decodes each valid `%XX` once, byte by byte as Latin-1; every other character stays as it is. */
function decodePercent(text: string): string {
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

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
