/**
 * Answers a caller that has ended its sending side (half-close), and notices one that has gone. TCP says the same of
 * both: only what is sent shows the difference, for a peer that has gone answers with a reset. So while a reply is
 * awaited, the first bytes of its status line leave one by one; they are the same whatever the reply will be.
 *
 * The first byte provokes the reset, and a later one meets it: their pauses double, for the sake of slow networks.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** How every reply begins. */
const beginning = 'HTTP/1.1 ';
const firstPauseMs = 10;

/** How much of the status line of a reply that is awaited has left. A property, for a map would cost the collector. */
const begun = Symbol('begun');

type Response = ServerResponse & { [begun]?: number };
type ReplyingSocket = Socket & { readonly _httpMessage?: Response | null };

/** Says that a reply comes later, and that whatever writes it asks `bytesBegun`. */
export function awaitReply(outgoing: Response): void {
  outgoing[begun] = 0;
}

/** How many bytes of the status line have left already. */
export function bytesBegun(outgoing: Response): number {
  return outgoing[begun] ?? 0;
}

/** Call when a caller has ended its sending side; once more does nothing. */
export function pokeCaller(socket: ReplyingSocket): void {
  const reply = socket._httpMessage;
  if (reply?.[begun] !== 0) return;
  // Its next reply is awaited just so.
  reply.once('close', () => pokeCaller(socket));
  sendNextByte(socket, reply, firstPauseMs);
}

function sendNextByte(socket: ReplyingSocket, reply: Response, pauseMs: number): void {
  const sent = bytesBegun(reply);
  if (reply.headersSent || !socket.writable || sent === beginning.length) return;
  reply[begun] = sent + 1;
  socket.write(beginning.charAt(sent), 'latin1');
  setTimeout(sendNextByte, pauseMs, socket, reply, 2 * pauseMs).unref();
}
