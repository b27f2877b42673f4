/** What is no assignment in a file of settings, as `.env`: dotenv passes over it in silence. Pure: no I/O, no clock. */

/** The numbers of such lines, from 1. A quoted value may span lines; a quote that nothing closes is one of them. */
export function malformedLines(text: string): readonly number[] {
  const malformed: number[] = [];
  let open: { readonly quote: string; readonly line: number } | undefined;
  for (const [index, line] of text.split(/\r\n?|\n/).entries()) {
    if (open !== undefined) {
      if (line.includes(open.quote)) open = undefined;
      continue;
    }
    if (/^\s*(?:#|$)/.test(line)) continue;
    const value = /^\s*(?:export\s+)?[\w.-]+(?:\s*=|:\s)(.*)$/.exec(line)?.[1]?.trim();
    const quote = /^['"`]/.exec(value ?? '')?.[0];
    if (value === undefined) malformed.push(index + 1);
    else if (quote !== undefined && !value.includes(quote, 1)) open = { quote, line: index + 1 };
  }
  return open === undefined ? malformed : [...malformed, open.line];
}
