/** Ends a server without losing a request that has arrived. */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/** How often connections that have become idle are closed. */
const sweepMs = 100;

/** After this many turns of the event loop, connections and requests that have arrived are accepted and parsed. */
const settlingTurns = 3;

/**
 * Keeps Node from cutting replies: it takes a connection for idle once its reply was handed over, however much of it the
 * caller has not read. While any connection has bytes to send, none is closed as idle, by `close` neither.
 *
 * @param begun the event of a new connection
 */
export function keepUnsent(server: Server, begun: 'connection' | 'secureConnection'): void {
  const open = new Set<Socket>();
  server.on(begun, (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
  const closeIdle = server.closeIdleConnections.bind(server);
  server.closeIdleConnections = () => {
    for (const { writableLength } of open) if (writableLength > 0) return;
    closeIdle();
  };
}

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
