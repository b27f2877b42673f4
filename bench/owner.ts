/** What a benchmark starts with the tests' own means ends with it, as with a test. */
import type { Owner } from '../test/support/process.ts';

/** Runs what owns processes, and ends them whatever happens, the last first. */
export async function own(run: (owner: Owner) => Promise<void>): Promise<void> {
  const ends: (() => void | Promise<void>)[] = [];
  try {
    await run({ onTestFinished: (end) => void ends.push(end) });
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
