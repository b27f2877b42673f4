/** A program that runs in the store, in Lua: all that it does happens at one moment. */
import { createHash } from 'node:crypto';

export interface Script {
  readonly text: string;
  /** SHA-1, by which the store knows a program that it has run before. */
  readonly digest: string;
}

export function defineScript(text: string): Script {
  return { text, digest: createHash('sha1').update(text).digest('hex') };
}
