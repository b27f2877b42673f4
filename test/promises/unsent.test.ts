import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { startPair } from '../support/gateway.ts';

const large = { body: { bytes: 8_000_000 } };

/** A caller that asks and does not read. */
function deafCaller(port: number, path: string): { end(): void } {
  const socket = connect(port, '127.0.0.1');
  socket.pause();
  socket.on('error', () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  return { end: () => socket.destroy() };
}

describe('callers that do not read hold no more than a bound', () => {
  it('beyond it others are told to come back, and served again once those have left', async () => {
    const { ask, standIn, port, logLines } = await startPair({ CACHE_TTL: '0s', HEADERS_TIMEOUT: '60s' });
    standIn.behave(large);
    const deaf = Array.from({ length: 16 }, (_, index) =>
      deafCaller(port, `/api/analytics/accounts/?deaf=${index}`),
    );
    await expect.poll(() => logLines().filter(({ status }) => status !== undefined).length).toBe(16);
    const refused = logLines().filter(({ problem }) => problem === 'overloaded');
    expect(refused.length).toBeGreaterThanOrEqual(3);
    const came = await ask('/api/analytics/accounts/?late');
    expect(came.json()).toMatchObject({ status: 503, code: 'overloaded', retryAfter: 1 });
    // Small answers are not held up.
    expect((await ask('/problems/overloaded')).status).toBe(200);
    for (const caller of deaf) caller.end();
    await expect.poll(async () => (await ask('/api/analytics/accounts/?again')).status).toBe(200);
  });
});
