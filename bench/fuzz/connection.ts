/** One connection to the gateway: sends bytes in pieces and collects what comes back, within a bound of time. */
import { connect } from 'node:net';
import type { FuzzedRequest } from './requests.ts';

export interface Came {
  readonly bytes: Buffer;
  /** The gateway did not end the connection in time, nor answer. */
  readonly hung: boolean;
  /** The connection was reset, which may have taken a reply with it. */
  readonly wasReset: boolean;
}

/** When nothing has come for so long after a reply, the caller ends its side; a late reply then still comes. */
const quietMs = 60;

/**
 * @param withinMs beyond all of the gateway's own limits: a connection that is open after that hangs
 * @param isWhole whether the bytes so far are whole replies
 */
export function exchange(
  port: number,
  pieces: readonly Buffer[],
  ending: FuzzedRequest['ending'],
  withinMs: number,
  isWhole: (bytes: Buffer) => boolean,
): Promise<Came> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let hung = false;
    let wasReset = false;
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    const limit = setTimeout(() => {
      hung = true;
      socket.destroy();
    }, withinMs);
    let quiet: NodeJS.Timeout | undefined;
    socket.on('connect', () => void send());
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      clearTimeout(quiet);
      quiet = setTimeout(() => {
        if (isWhole(Buffer.concat(chunks))) socket.end();
      }, quietMs);
    });
    socket.on('end', () => socket.end());
    socket.on('error', () => {
      wasReset = true;
    });
    socket.on('close', () => {
      clearTimeout(limit);
      clearTimeout(quiet);
      resolve({ bytes: Buffer.concat(chunks), hung, wasReset });
    });

    async function send(): Promise<void> {
      for (const piece of pieces) {
        if (socket.destroyed) return;
        socket.write(piece);
        await new Promise((next) => setImmediate(next));
      }
      if (ending === 'half-closes') socket.end();
      if (ending === 'leaves') socket.destroy();
    }
  });
}
