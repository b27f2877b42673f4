import { afterAll } from 'vitest';
import type { Owner } from './process.ts';

/** Owns what several tests share: it ends with the calling file or `describe`, the last first. */
export function sharedOwner(): Owner {
  const ends: (() => void | Promise<void>)[] = [];
  afterAll(async () => {
    const failures: unknown[] = [];
    // One that fails leaves no process of the others behind.
    for (const end of ends.reverse()) {
      try {
        await end();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  });
  return { onTestFinished: (end) => void ends.push(end) };
}
