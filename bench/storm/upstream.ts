/** Starts the stand-in's process and talks to it. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { compileCache } from '../../test/support/program.ts';
import type { Limit, Order, Report } from './upstream-process.ts';

export interface Upstream {
  readonly url: URL;
  setLimit(limit: Limit): void;
  counts(): Promise<{ answered: number; refused: number }>;
  close(): Promise<void>;
}

export async function startUpstream(limit: Limit, latencyMs: number): Promise<Upstream> {
  const env = { ...process.env, NODE_COMPILE_CACHE: compileCache };
  const child = fork(new URL('./upstream-process.ts', import.meta.url), { stdio: 'inherit', env });
  const tell = (order: Order): boolean => child.send(order);
  const hear = async (): Promise<Report> => ((await once(child, 'message')) as [Report])[0];

  tell({ kind: 'start', limit, latencyMs });
  const started = await hear();
  if (started.kind !== 'started') throw new Error('the stand-in did not start');
  return {
    url: new URL(started.url),
    setLimit: (next) => tell({ kind: 'limit', limit: next }),
    async counts() {
      const counted = hear();
      tell({ kind: 'count' });
      const report = await counted;
      if (report.kind !== 'counted') throw new Error('the stand-in did not count');
      return report;
    },
    async close() {
      const gone = once(child, 'exit');
      child.disconnect();
      await gone;
    },
  };
}
