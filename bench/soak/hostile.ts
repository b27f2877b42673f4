/**
 * The one caller of the soak that means no good, beside those that do: its reads hang until UPSTREAM_TIMEOUT now and
 * then, and heads that are none come with them, 60 KiB each, from a peer that needs no token for it.
 */
import { connect } from 'node:net';
import type { Callers } from './callers.ts';
import { hangingTarget } from './reads.ts';

export interface HostileOptions {
  readonly port: number;
  readonly callers: Pick<Callers, 'send'>;
  readonly token: string;
}

const everyMs = 2_000;
/** At once, of each round. */
const hangingReads = 2;
const longBytes = 60 * 1_024;

const runs = ['\t', ' ', 'a', 'eyJ', '%25', '"', ','];

/** Heads that Node's parser refuses only once it has most of them. */
function malformedHead(round: number): string {
  const run = runs[round % runs.length] ?? '';
  const long = run.repeat(Math.floor(longBytes / run.length));
  const isField = Math.floor(round / runs.length) % 2 === 0;
  return isField ? `GET / HTTP/1.1\r\nB d\r\nX: a${long}b\r\n\r\n` : `GET /${long}`;
}

/** Begins at once. */
export function startHostileCaller({ port, callers, token }: HostileOptions): { end(): void } {
  let round = 0;
  const timer = setInterval(() => {
    for (let at = 0; at < hangingReads; at++) callers.send(hangingTarget(hangingReads * round + at), token);
    const socket = connect(port, '127.0.0.1', () => socket.end(malformedHead(round), 'latin1'));
    // The gateway ends it when it has seen enough.
    socket.on('error', () => {});
    socket.resume();
    round += 1;
  }, everyMs);
  return { end: () => clearInterval(timer) };
}
