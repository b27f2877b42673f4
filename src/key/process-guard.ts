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
  const flags = [...nodeOptions.split(/\s+/), ...execArgv]
    // Node takes underscores for dashes, and NODE_OPTIONS may have quotes around an option.
    .map((option) => (option.replace(/^["']+/, '').split(/[="']/, 1)[0] ?? '').replaceAll('_', '-'))
    .filter((flag) => refused.some((pattern) => pattern.test(flag)));
  return [...new Set(flags)];
}
