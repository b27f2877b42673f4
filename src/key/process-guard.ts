/** Which flags of the runtime would lay the key open, and who must not start us. Pure: no `this`, no I/O, no clock. */

/** The environment variable that says that a process was started as the command of an `exec:` store. */
export const storeCommandMark = 'ANALYTICS_GATEWAY_STORE_COMMAND';

/**
 * Flags that open a debugger or write memory and environment to files: the inspector shows everything to whoever
 * connects; reports and snapshots hold the key.
 */
const refused = [
  /^--inspect(-|$)/,
  /^--debug(-|$)/,
  // Turning a report's or the inspector's contents off is welcome.
  /^--report-(?!exclude-)/,
  /^--experimental-report$/,
  /^--heap-prof(-|$)/,
  /^--heapsnapshot-/,
  // V8's own.
  /^--heap-snapshot-/,
  // The file may hold any of these.
  /^--experimental-(default-)?config-file$/,
  /^--build-snapshot(-|$)/,
  // Whoever has the TLS secrets can read the key off the wire.
  /^--tls-keylog$/,
  /^--abort-on-uncaught-exception$/,
];

/**
 * Names the flags among these that are refused; their values are left out.
 *
 * @param nodeOptions the environment variable `NODE_OPTIONS`, as it is
 * @param execArgv `process.execArgv`
 */
export function refusedNodeOptions(nodeOptions: string, execArgv: readonly string[] = []): string[] {
  const flags = [...splitOptions(nodeOptions), ...execArgv]
    // Node takes underscores for dashes, and V8 one dash for two.
    .map((option) => (option.split(/[=\s]/, 1)[0] ?? '').replace(/^["']*-+/, '--').replace(/["']$/, ''))
    .map((flag) => flag.replaceAll('_', '-'))
    .filter((flag) => refused.some((pattern) => pattern.test(flag)));
  return [...new Set(flags)];
}

/**
 * As Node takes `NODE_OPTIONS` apart: only `"` quotes, anywhere in a word, and a backslash counts only within.
 * (Other whitespace than spaces is part of a word there, and the word then no flag; here it separates.)
 */
function splitOptions(text: string): string[] {
  const words: string[] = [];
  let word = '';
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const character = text.charAt(at);
    if (character === '\\' && quoted) word += text.charAt(++at);
    else if (character === '"') quoted = !quoted;
    else if (/\s/.test(character) && !quoted) {
      words.push(word);
      word = '';
    } else word += character;
  }
  words.push(word);
  return words;
}
