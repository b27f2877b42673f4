/** A line for a terminal: characters that would move the cursor or hide others are shown as numbers. */
export function visible(line: string): string {
  return line.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}
