/** Percent-encoding (RFC 3986 section 2.1), decoded leniently: a caller's text must never throw. Pure. */

/** Decodes each valid `%XX` once, byte by byte as Latin-1; every other character stays as it is. */
export function decodePercent(text: string): string {
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}
