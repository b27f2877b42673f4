/** Ends a server without losing a request that has arrived. */
import type { Server } from 'node:http';

/** How often connections that have become idle are closed. */
const sweepMs = 100;

/** After this many turns of the event loop, connections and requests that have arrived are accepted and parsed. */
const settlingTurns = 3;

/**
 * Stops listening and waits until every connection has ended.
 *
 * `server.close()` alone waits for keep-alive connections to time out, so idle ones are closed here, again and
 * again: a connection becomes idle when its last answer is sent.
 *
 * @param graceMs when they are still open after this long, `onOverdue` is called and, a moment later, they are ended
 */
export async function closeServer(server: Server, graceMs: number, onOverdue: () => void): Promise<void> {
  // `close` ends idle connections at once, also those whose request has arrived and was not read yet.
  for (let turn = 0; turn < settlingTurns; turn++) await new Promise((resolve) => setImmediate(resolve));
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const lastMs = Math.min(1_000, graceMs / 10);
  const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
  const overdue = setTimeout(onOverdue, graceMs - lastMs);
  const end = setTimeout(() => server.closeAllConnections(), graceMs - lastMs / 4);
  await closed;
  clearInterval(sweep);
  clearTimeout(overdue);
  clearTimeout(end);
}
