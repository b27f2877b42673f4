/**
 * Keeps the bodies in flight together under a bound. An answer that says how long it is waits, first come first
 * served, until that much is free; one that does not say takes as it grows, and is refused where nothing is left.
 */

export interface BodyShare {
  /** Takes more; `false` where nothing is left. */
  grow(bytes: number): boolean;
  /** Gives everything back, and lets those who wait go on. */
  release(): void;
}

export interface BodyBudget {
  /**
   * @param bytes what the answer says it will need; 0 where it does not say
   * @param onReady called once the bytes are reserved, at once where they are free
   */
  reserve(bytes: number, onReady: () => void): BodyShare;
  readonly usedBytes: number;
}

export function limitBodies(maxBytes: number): BodyBudget {
  let usedBytes = 0;
  const waiting: { bytes: number; start: () => void }[] = [];

  function admit(): void {
    for (
      let first = waiting[0];
      first !== undefined && usedBytes + first.bytes <= maxBytes;
      first = waiting[0]
    ) {
      waiting.shift();
      first.start();
    }
  }

  return {
    reserve(bytes, onReady) {
      let held = 0;
      const turn = {
        bytes,
        start() {
          held = bytes;
          usedBytes += bytes;
          onReady();
        },
      };
      if (waiting.length === 0 && usedBytes + bytes <= maxBytes) turn.start();
      else waiting.push(turn);
      return {
        grow(more) {
          if (usedBytes + more > maxBytes) return false;
          held += more;
          usedBytes += more;
          return true;
        },
        release() {
          const place = waiting.indexOf(turn);
          if (place !== -1) waiting.splice(place, 1);
          usedBytes -= held;
          held = 0;
          admit();
        },
      };
    },
    get usedBytes() {
      return usedBytes;
    },
  };
}
