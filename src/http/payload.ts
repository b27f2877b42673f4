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
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

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

/** What the pieces of a body are put into. */
const slabBytes = 16 * 1_024;
/** What was read from a socket may be a small window on a large buffer, and would keep it alive. */
const sharedBytesTolerated = 1_024;
const noSlab = Buffer.alloc(0);

/** So many bytes of copied pieces may lie dead before V8 collects them. */
const deadBytesTolerated = 2 * 2 ** 20;
let deadBytes = 0;
let collectYoung: (() => void) | undefined;

/**
 * Makes V8 collect young objects each time that so many bytes were copied. The pieces lie outside its heap: by itself it
 * collects tens of MiB of them, together with all old objects, and far more where it has little processor time. It costs
 * nothing: old objects are collected less often.
 */
function collectPieces(copiedBytes: number): void {
  deadBytes += copiedBytes;
  if (deadBytes < deadBytesTolerated) return;
  deadBytes = 0;
  if (collectYoung === undefined) {
    // V8 gives it to contexts that are made after the flag was set.
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as NonNullable<typeof globalThis.gc>;
    collectYoung = () => gc({ type: 'minor' });
  }
  collectYoung();
}

/**
 * A body that comes in pieces. Each is copied to those before it: of a body that comes byte by byte the pieces would take a
 * hundred times its length, and a piece may be a window on all that was read with it.
 */
export class GatheredBytes {
  length = 0;
  readonly #slabs: Buffer[] = [];
  #slab = noSlab;
  #used = 0;

  /** @param expectedBytes of the whole body; 0 where that is not known */
  add(piece: Buffer, expectedBytes = 0): void {
    // Mostly the whole body, which is not copied.
    if (this.length === 0 && piece.length >= expectedBytes) this.#slabs.push(piece);
    else this.#copy(piece, expectedBytes);
    this.length += piece.length;
  }

  #copy(piece: Buffer, expectedBytes: number): void {
    for (let at = 0; at < piece.length; ) {
      if (this.#used === this.#slab.length) {
        this.#slab = Buffer.allocUnsafeSlow(Math.max(expectedBytes - this.length - at, slabBytes));
        this.#slabs.push(this.#slab);
        this.#used = 0;
      }
      const copied = piece.copy(this.#slab, this.#used, at);
      at += copied;
      this.#used += copied;
    }
    collectPieces(piece.length);
  }

  /** In as few buffers as they were put into. */
  get parts(): readonly Buffer[] {
    const full = this.#slab.length === 0 ? this.#slabs : this.#slabs.slice(0, -1);
    return this.#slab.length === 0 ? full : [...full, this.#slab.subarray(0, this.#used)];
  }

  /** As one buffer; one that is to stay a buffer holds (nearly) nothing else. */
  whole(): Buffer {
    const { parts, length } = this;
    const [first] = parts;
    if (parts.length === 1 && first !== undefined) {
      if (length <= smallBytes || first.buffer.byteLength - length <= sharedBytesTolerated) return first;
    }
    // Not from the pool: a pooled buffer keeps its whole slab alive.
    const whole = Buffer.allocUnsafeSlow(length);
    let offset = 0;
    for (const part of parts) offset += part.copy(whole, offset);
    return whole;
  }
}
