/** A binary heap whose items know their place, so that one can be moved or taken out of the middle in O(log n). */

export interface HeapItem {
  /** The item's place in the heap, kept by the heap; -1 outside. */
  slot: number;
}

export interface Heap<T extends HeapItem> {
  readonly items: readonly T[];
  add(item: T): void;
  remove(item: T): void;
  /** Restores the order after the item's rank has changed. */
  moved(item: T): void;
}

/** @param isBefore whether `a` comes out before `b` */
export function heapBy<T extends HeapItem>(isBefore: (a: T, b: T) => boolean): Heap<T> {
  const items: T[] = [];

  const put = (item: T, slot: number): void => {
    items[slot] = item;
    item.slot = slot;
  };

  const rise = (item: T): void => {
    let slot = item.slot;
    while (slot > 0) {
      const parent = items[(slot - 1) >> 1] as T;
      if (!isBefore(item, parent)) break;
      const parentSlot = parent.slot;
      put(parent, slot);
      slot = parentSlot;
    }
    put(item, slot);
  };

  const sink = (item: T): void => {
    let slot = item.slot;
    for (;;) {
      let child = 2 * slot + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && isBefore(items[child + 1] as T, items[child] as T)) child++;
      const below = items[child] as T;
      if (!isBefore(below, item)) break;
      put(below, slot);
      slot = child;
    }
    put(item, slot);
  };

  const moved = (item: T): void => {
    rise(item);
    sink(item);
  };

  return {
    items,
    add(item) {
      put(item, items.length);
      rise(item);
    },
    remove(item) {
      const last = items.pop() as T;
      if (last !== item) {
        put(last, item.slot);
        moved(last);
      }
      item.slot = -1;
    },
    moved,
  };
}
