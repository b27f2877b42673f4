/** The version of this software, as `package.json` has it. A test keeps the two the same. */
export const version = '0.2.0';

/** How the gateway names itself in `Via`, to the upstream and to callers (RFC 9110 section 7.6.3). */
export const viaName = '1.1 analytics-gateway';
