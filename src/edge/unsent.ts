/**
 * Bounds what callers have been answered and have not read yet. A reply is given to the connection as a whole, so a
 * caller that does not read holds it in memory; many of them could hold everything. Small replies fit the buffers of
 * the operating system and are not counted.
 */
import { GatewayError } from '../errors.ts';
import { andThen, type Layer } from '../layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export interface UnsentOptions {
  /** Bytes of replies that may wait to be read, all callers together. */
  readonly maxBytes: number;
  /** How long one caller may take to read its reply; then its connection is cut. */
  readonly withinMs: number;
}

/** What the operating system takes off our hands at once. */
const smallBytes = 64 * 1_024;

/** Answers `overloaded` where too much waits to be read already. */
export function boundUnsent({ maxBytes, withinMs }: UnsentOptions): Layer<InboundRequest, Reply> {
  let unsentBytes = 0;

  function track(request: InboundRequest, bytes: number): void {
    unsentBytes += bytes;
    const timer = setTimeout(() => request.cut(), withinMs);
    timer.unref();
    request.onceDone(() => {
      clearTimeout(timer);
      unsentBytes -= bytes;
    });
  }

  return (next) =>
    function bound(request, trace) {
      return andThen(next(request, trace), (reply) => {
        const bytes = reply.body === null ? 0 : reply.body.length;
        if (bytes < smallBytes) return reply;
        if (unsentBytes + bytes > maxBytes) {
          throw new GatewayError('overloaded', {
            retryAfterMs: 1_000,
            reason: 'too many replies wait to be read',
          });
        }
        track(request, bytes);
        return reply;
      });
    };
}
