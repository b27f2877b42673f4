/**
 * The last purges that this gateway knows. What it knows counts, and not what the store says at the moment: who writes
 * there could name an earlier purge again and bring back answers from before a later one. No clock: times come in.
 */
import { clockErrorMs } from './store-clock.ts';

/** When the store took it, in ms of its clock, and a part that is like no other. */
const idShape = /^(\d{1,15})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export class KnownPurges {
  readonly #purgeable: ReadonlySet<string>;
  readonly #last = new Map<string, string>();

  /** @param purgeable names of operations, and `*` for all: what else is said to be purged is not kept */
  constructor(purgeable: readonly string[]) {
    this.#purgeable = new Set(purgeable);
  }

  /** Whether nothing was ever purged, as far as it is known here. */
  get isEmpty(): boolean {
    return this.#last.size === 0;
  }

  /**
   * Takes a purge that was heard of.
   *
   * @param nowMs the store's time; `undefined` where it is not known, and then nothing is learned
   * @returns whether it is later than what was known
   */
  learn(what: string, id: string, nowMs: number | undefined): boolean {
    const known = this.#last.get(what);
    if (!this.#purgeable.has(what) || !isPast(id, nowMs) || id === known) return false;
    // The store's clock was set back where the known one lies ahead: nothing would ever be later.
    if (known !== undefined && isPast(known, nowMs) && !isLater(id, known)) return false;
    this.#last.set(what, id);
    return true;
  }

  /** Takes a purge that this gateway has made itself: it knows that it is the last. */
  made(what: string, id: string): void {
    if (idShape.test(id)) this.#last.set(what, id);
  }

  /** What is known of reads of an operation, to be sealed with an answer when its exchange begins. */
  epochOf(operation: string): string {
    return `${this.#last.get('*') ?? ''} ${this.#last.get(operation) ?? ''}`;
  }

  /**
   * Whether an answer comes from after the purges that are known here.
   *
   * @param epoch what was sealed with it
   */
  isCurrent(epoch: unknown, operation: string, nowMs: number | undefined): boolean {
    if (epoch === this.epochOf(operation)) return true;
    if (typeof epoch !== 'string') return false;
    const [all = '', own = ''] = epoch.split(' ');
    return (
      [
        ['*', all],
        [operation, own],
      ] as const
    ).every(([what, id]) => {
      const known = this.#last.get(what) ?? '';
      return id === known || (isPast(id, nowMs) && (known === '' || isLater(id, known)));
    });
  }

  /** What the store should say of a purge and does not; `undefined` where it says what is known here, or a later one. */
  missingIn(what: string, said: string): string | undefined {
    const known = this.#last.get(what);
    return known === said ? undefined : known;
  }
}

function isLater(one: string, other: string): boolean {
  const [oneMs, otherMs] = [one, other].map((id) => Number(idShape.exec(id)?.[1])) as [number, number];
  return oneMs === otherMs ? one > other : oneMs > otherMs;
}

function isPast(id: string, nowMs: number | undefined): boolean {
  const atMs = idShape.exec(id)?.[1];
  return atMs !== undefined && nowMs !== undefined && Number(atMs) <= nowMs + clockErrorMs;
}
