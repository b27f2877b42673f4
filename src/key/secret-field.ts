/** A key kept as it is, or as a member of a JSON object. Pure: no `this`, no I/O, no clock. */
import { KeyStoreError } from './store.ts';

/**
 * @param name the member's name; `undefined`: the text is the key
 * @throws KeyStoreError where there is no such member; `JSON.parse`'s own error would quote the text
 */
export function memberOf(text: string, name: string | undefined, describe: string): string {
  if (name === undefined) return text;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new KeyStoreError(`${describe}: the secret is not JSON, so it has no field`);
  }
  const value =
    typeof json === 'object' && json !== null && Object.hasOwn(json, name)
      ? (json as Record<string, unknown>)[name]
      : undefined;
  if (typeof value !== 'string') throw new KeyStoreError(`${describe}: the secret has no such field of text`);
  return value;
}
