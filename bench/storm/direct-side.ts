/** Callers that each hold the key and retry for themselves, as a careful script does today. */
import { setTimeout as sleep } from 'node:timers/promises';
import pRetry from 'p-retry';
import { Pool } from 'undici';
import type { Ending, Side } from './callers.ts';

class Refused extends Error {
  readonly retryAfterMs: number;

  constructor(retryAfterMs: number) {
    super('429');
    this.retryAfterMs = retryAfterMs;
  }
}

/** @param deadlineMs after which a script gives a request up */
export async function startDirectSide(upstream: URL, key: string, deadlineMs: number): Promise<Side> {
  const pool = new Pool(upstream.origin, { connections: 256 });
  let count = 0;

  const attempt = async (): Promise<void> => {
    const path = `${upstream.pathname}/analytics/accounts/?n=${count++}`;
    const { statusCode, headers, body } = await pool.request({
      method: 'GET',
      path,
      headers: { 'x-api-key': key, accept: 'application/json' },
    });
    await body.dump();
    if (statusCode === 429) throw new Refused(Number(headers['retry-after'] ?? 0) * 1000);
    if (statusCode !== 200) throw new TypeError(`status ${statusCode}`);
  };

  return {
    name: 'each for itself',
    async ask(): Promise<Ending> {
      try {
        await pRetry(attempt, {
          retries: 10,
          minTimeout: 500,
          maxTimeout: 8000,
          randomize: true,
          maxRetryTime: deadlineMs,
          // p-retry knows no Retry-After: what it asks beyond the first backoff is waited here.
          onFailedAttempt: ({ error, retriesLeft }) =>
            error instanceof Refused && retriesLeft > 0 ? sleep(error.retryAfterMs) : undefined,
        });
        return { kind: 'answered' };
      } catch {
        return { kind: 'failed' };
      }
    },
    async close() {
      await pool.destroy();
      return undefined;
    },
  };
}
