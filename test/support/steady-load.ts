/** Requests without a pause, on new connections and on kept ones, and what became of each. */
import { Agent, type RequestOptions, request } from 'node:http';

export interface SteadyLoad {
  /** Requests that were answered with 200. */
  readonly answered: number;
  /** What came instead: a status or the code of an error, and whether the connection was a kept one. */
  readonly failures: readonly string[];
  /** Ends the load, once each request has ended. */
  stop(): Promise<void>;
}

/** @param asks the listener, the path and the fields of each request */
export function applySteadyLoad(
  asks: Pick<RequestOptions, 'host' | 'port' | 'path' | 'headers'>,
  loops: { readonly fresh: number; readonly kept: number },
): SteadyLoad {
  const agent = new Agent({ keepAlive: true });
  const failures: string[] = [];
  let answered = 0;
  let isOver = false;

  const ask = (kept: boolean): Promise<void> =>
    new Promise((resolve) => {
      const asked = request({ ...asks, agent: kept ? agent : false }, (response) => {
        if (response.statusCode !== 200) failures.push(`${how()} ${response.statusCode}`);
        response
          .resume()
          .once('end', () => {
            if (response.statusCode === 200) answered += 1;
            resolve();
          })
          .once('error', (error: NodeJS.ErrnoException) => {
            failures.push(`${how()} ${error.code} within the reply`);
            resolve();
          });
      });
      // A kept connection that was ended is followed by a fresh one.
      const how = (): string => (asked.reusedSocket ? 'kept' : 'fresh');
      asked.once('error', (error: NodeJS.ErrnoException) => {
        failures.push(`${how()} ${error.code}`);
        // Where nothing listens, not as fast as the machine can.
        setTimeout(resolve, 10);
      });
      asked.end();
    });
  const loop = async (kept: boolean): Promise<void> => {
    while (!isOver) await ask(kept);
  };
  const running = [
    ...Array.from({ length: loops.fresh }, () => loop(false)),
    ...Array.from({ length: loops.kept }, () => loop(true)),
  ];
  return {
    get answered() {
      return answered;
    },
    failures,
    async stop() {
      isOver = true;
      await Promise.all(running);
      agent.destroy();
    },
  };
}
