/** Virtual time: an agenda of acts, in order of their times. */
export class VirtualClock {
  nowMs = 0;
  /** Acts by their time; the times are a binary heap. */
  readonly #acts = new Map<number, (() => void)[]>();
  readonly #times: number[] = [];

  /** Times have a grain of 0.1 ms; nothing happens in the past. */
  at(timeMs: number, act: () => void): void {
    const time = Math.max(Math.ceil(timeMs * 10) / 10, this.nowMs);
    const acts = this.#acts.get(time);
    if (acts !== undefined) {
      acts.push(act);
      return;
    }
    this.#acts.set(time, [act]);
    this.#push(time);
  }

  runUntil(endMs: number): void {
    while (this.#times.length > 0 && (this.#times[0] as number) <= endMs) {
      this.nowMs = this.#pop();
      const acts = this.#acts.get(this.nowMs) ?? [];
      // Acts may add to the list while it runs.
      for (let i = 0; i < acts.length; i++) (acts[i] as () => void)();
      this.#acts.delete(this.nowMs);
    }
    this.nowMs = endMs;
  }

  #push(time: number): void {
    const times = this.#times;
    let i = times.length;
    times.push(time);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if ((times[parent] as number) <= time) break;
      times[i] = times[parent] as number;
      i = parent;
    }
    times[i] = time;
  }

  #pop(): number {
    const times = this.#times;
    const top = times[0] as number;
    const last = times.pop() as number;
    if (times.length === 0) return top;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= times.length) break;
      if (child + 1 < times.length && (times[child + 1] as number) < (times[child] as number)) child++;
      if ((times[child] as number) >= last) break;
      times[i] = times[child] as number;
      i = child;
    }
    times[i] = last;
    return top;
  }
}

/** Reproducible chance (mulberry32): numbers from 0 to 1. */
export function seeded(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A busy process: again and again it does nothing for a while, and then all that came meanwhile at once. */
export class Stalls {
  readonly #random: () => number;
  readonly #everyMs: number;
  readonly #longestMs: number;
  /** Begin and end of each stall so far, in order. */
  readonly #stalls: { fromMs: number; toMs: number }[] = [{ fromMs: 0, toMs: 0 }];

  constructor(random: () => number, everyMs: number, longestMs: number) {
    this.#random = random;
    this.#everyMs = everyMs;
    this.#longestMs = longestMs;
  }

  /** When the process gets to what is due at this time. */
  after(timeMs: number): number {
    if (this.#longestMs === 0) return timeMs;
    let last = this.#stalls.at(-1) as { fromMs: number; toMs: number };
    while (last.toMs <= timeMs) {
      const fromMs = last.toMs + 2 * this.#everyMs * this.#random();
      last = { fromMs, toMs: fromMs + this.#longestMs * this.#random() };
      this.#stalls.push(last);
      if (this.#stalls.length > 100) this.#stalls.shift();
    }
    const stall = this.#stalls.findLast(({ fromMs }) => fromMs <= timeMs);
    return Math.max(timeMs, stall?.toMs ?? 0);
  }
}
