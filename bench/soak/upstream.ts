/** The soak's upstream as its parent sees it. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { UpstreamCounts, UpstreamOrder, UpstreamReport } from './upstream-process.ts';

export interface SoakUpstream {
  readonly url: string;
  counts(): Promise<UpstreamCounts>;
  end(): void;
}

const program = fileURLToPath(new URL('upstream-process.ts', import.meta.url));

export async function startSoakUpstream(seed: number): Promise<SoakUpstream> {
  const child = fork(program);
  const started = await ask(child, { kind: 'start', seed });
  if (started.kind !== 'started') throw new Error('the upstream did not start');
  return {
    url: started.url,
    async counts() {
      const counted = await ask(child, { kind: 'count', seed });
      if (counted.kind !== 'counted') throw new Error('the upstream did not count');
      return counted;
    },
    end: () => child.disconnect(),
  };
}

/** One answer to each order, in turn. */
function ask(child: ChildProcess, order: UpstreamOrder): Promise<UpstreamReport> {
  return new Promise((resolve, reject) => {
    const onExit = (): void => reject(new Error('the upstream has ended'));
    child.once('exit', onExit);
    child.once('message', (report: UpstreamReport) => {
      child.off('exit', onExit);
      resolve(report);
    });
    child.send(order);
  });
}
