import { afterAll } from 'vitest';
import type { Owner } from './process.ts';

/** Owns what several tests share: it ends with the calling file or `describe`, the last first. */
export function sharedOwner(): Owner {
  const ends: (() => void | Promise<void>)[] = [];
  afterAll(async () => {
    for (const end of ends.reverse()) await end();
  });
  return { onTestFinished: (end) => void ends.push(end) };
}
