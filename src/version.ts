/** The version of this software, as `package.json` has it. A test keeps the two the same. */
export const version = '0.1.0';
