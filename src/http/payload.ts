/**
 * The bytes of a body, in the form that costs least.
 *
 * A small one is a string whose characters are its bytes (Latin-1): V8 keeps it as one byte each and beside nothing
 * else, the search for the key reads it as it stands, and it leaves with its head in one write. A `Buffer` costs a
 * piece of memory outside V8's heap, three objects that describe it, and a second part of each write. A large one
 * stays a buffer.
 *
 * Either way `length` is the number of bytes.
 */
export type Payload = Buffer | string;

/** With its head still within what libuv writes from the stack: 16 KiB. */
export const smallBytes = 14 * 1_024;

/** A body of these bytes. The buffer may stay part of a larger one. */
export function payloadOf(bytes: Buffer): Payload {
  return bytes.length <= smallBytes ? latin1Of(bytes) : bytes;
}

/** A copy that holds no more memory than its own bytes: not from the pool, whose slab a small buffer keeps alive. */
export function ownBytes(bytes: Buffer): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.byteLength);
  bytes.copy(own);
  return own;
}

/** Its bytes as a buffer, for what works on nothing else. */
export function bufferOf(payload: Payload): Buffer {
  return typeof payload === 'string' ? Buffer.from(payload, 'latin1') : payload;
}

/** Its bytes as the characters of a string. */
export function latin1Of(payload: Payload): string {
  return typeof payload === 'string' ? payload : payload.toString('latin1');
}
