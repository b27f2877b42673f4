/**
 * Counts what code does, where its time is a promise: how often each of its blocks runs, by V8's own count. A clock would
 * depend on the machine, and a counter in the code would count what its author thought of.
 */
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';

export interface StepCounter {
  /** The steps that the code took during a call, the promise that it returns included. */
  stepsOf(run: () => unknown): Promise<number>;
  close(): void;
}

/**
 * Begins to count. What is counted has to be imported after this: V8 counts blocks of code that is compiled from now on.
 *
 * @param files matches the paths of those whose steps count
 */
export async function countSteps(files: RegExp): Promise<StepCounter> {
  // Optimised code leaves out counts of what it need not do.
  for (const flag of ['--no-opt', '--no-maglev']) setFlagsFromString(flag);
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  /** Of all blocks, since the last call. */
  const taken = async (): Promise<number> => {
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const counts = result
      .filter(({ url }) => files.test(url))
      .flatMap(({ functions }) => functions.flatMap(({ ranges }) => ranges.map(({ count }) => count)));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  return {
    async stepsOf(run) {
      await taken();
      await run();
      return taken();
    },
    close() {
      session.disconnect();
      for (const flag of ['--opt', '--maglev']) setFlagsFromString(flag);
    },
  };
}
