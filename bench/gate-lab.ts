/**
 * The gate's laboratory: its rules on a virtual clock against hidden limits, beside the first design and the floors.
 * Ends with 1 where a floor is missed.
 *
 *   node bench/gate-lab.ts [--seeds 5] [--only TEXT]
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { type Measured, measure } from './gate-lab/measure.ts';
import { type Row, rows } from './gate-lab/scenarios.ts';
import { head, resultOf } from './gate-lab/table.ts';

interface Task {
  readonly name: string;
  readonly seed: number;
}

const rowOf = (name: string): Row => rows.find((row) => row.name === name) as Row;

/** Hands the tasks to as many threads as there are cores. */
async function measureAll(
  tasks: readonly Task[],
  onDone: (task: Task, measured: Measured) => void,
): Promise<void> {
  const left = [...tasks];
  const thread = async (): Promise<void> => {
    const worker = new Worker(import.meta.filename, { workerData: 'thread' });
    for (let task = left.shift(); task !== undefined; task = left.shift()) {
      worker.postMessage(task);
      const measured = await new Promise<Measured>((resolve, reject) => {
        worker.once('message', resolve);
        worker.once('error', reject);
      });
      worker.removeAllListeners('error');
      onDone(task, measured);
    }
    await worker.terminate();
  };
  await Promise.all(Array.from({ length: availableParallelism() }, thread));
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { seeds: { type: 'string', default: '5' }, only: { type: 'string', default: '' } },
  });
  const chosen = rows.filter(({ name }) => name.includes(values.only));
  const runs = new Map<string, Measured[]>(chosen.map(({ name }) => [name, []]));
  const tasks = chosen.flatMap(({ name, isLeast }) =>
    Array.from({ length: isLeast ? 3 : Number(values.seeds) }, (_, i) => ({ name, seed: i + 1 })),
  );
  await measureAll(tasks, ({ name }, measured) => runs.get(name)?.push(measured));
  const results = chosen.map((row) => resultOf(row, runs.get(row.name) ?? []));
  process.stdout.write(`${[head, ...results.map(({ line }) => line)].join('\n')}\n`);
  const missed = results.filter((result) => result.missed.length > 0).length;
  process.stdout.write(`\n${results.length - missed} of ${results.length} scenarios reach their floors.\n`);
  process.exitCode = missed > 0 ? 1 : 0;
}

if (isMainThread) await main();
else if (workerData === 'thread') {
  parentPort?.on('message', ({ name, seed }: Task) => parentPort?.postMessage(measure(rowOf(name), seed)));
}
