/** What every peer does for a request, so that they are measured at the same work: recognise, log, inject. */
import { hash, randomUUID } from 'node:crypto';
import pino from 'pino';

export const upstream = process.env['BENCH_UPSTREAM'] ?? '';
export const upstreamKey = process.env['BENCH_KEY'] ?? '';

const callers = new Map([[process.env['BENCH_DIGEST'], 'bench']]);

/** The caller's name by the SHA-256 of its bearer token, or `undefined`. */
export function recognise(authorization) {
  if (authorization === undefined || !authorization.startsWith('Bearer ')) return undefined;
  return callers.get(hash('sha256', authorization.slice(7), 'hex'));
}

const log = pino(
  { base: null },
  pino.destination({ dest: process.env['BENCH_LOG'], sync: false, minLength: 4_096 }),
);

export function newRequestId() {
  return randomUUID();
}

/** One JSON line for a request. */
export function writeAccess(requestId, caller, method, path, status, startedMs) {
  const totalMs = Math.round((performance.now() - startedMs) * 100) / 100;
  log.info({ requestId, caller, method, path, status, totalMs }, 'request');
}

/** Tells the benchmark where to find this peer. */
export function tellPort(port) {
  process.stdout.write(`${JSON.stringify({ port })}\n`);
}
