/**
 * Limits the memory that unread replies take. A reply is handed to its connection as a whole, so a caller that does
 * not read keeps it in memory. No caller can take the room of the others: where a reply does not fit, the caller
 * that holds the most loses its oldest unread reply. Counted here are large replies, and small ones that wait behind an
 * earlier reply of their connection. All others, and every reply without a caller, count for their connection and so for
 * its address (`connections.ts`).
 */
import { GatewayError } from '../errors.ts';
import { andThen, type Layer } from '../exchange/layer.ts';
import type { InboundRequest, Reply } from './inbound.ts';

export interface BufferedResponsesOptions {
  /** Bytes of unread replies, all callers together. */
  readonly maxBytes: number;
  /** How long a caller may take to read its reply; then its connection is ended. */
  readonly withinMs: number;
  /** A reply was not read and its connection was ended, though its line in the log says that it was sent. */
  readonly onUnread: (unread: UnreadReply) => void;
}

export interface UnreadReply {
  readonly caller: string | undefined;
  readonly requestId: string;
  readonly bytes: number;
  readonly reason: string;
}

/** What the operating system takes at once. */
const socketBufferBytes = 64 * 1_024;

interface Buffered {
  readonly requestId: string;
  readonly bytes: number;
  /** `undefined` once the reply has left: a set that has grown keeps its former members for a while. */
  request: InboundRequest | undefined;
}

/** The unread replies of one caller, the oldest first. */
interface CallerReplies {
  readonly caller: string | undefined;
  readonly replies: Set<Buffered>;
  bytes: number;
}

/** Every unread reply that is counted, by caller. */
class BufferedReplies {
  readonly #options: BufferedResponsesOptions;
  readonly #callers = new Map<string | undefined, CallerReplies>();
  #bytes = 0;

  constructor(options: BufferedResponsesOptions) {
    this.#options = options;
  }

  /**
   * Counts a reply until it has left.
   *
   * @throws GatewayError `overloaded` where it does not fit though no caller holds more than one reply
   */
  add(request: InboundRequest, requestId: string, bytes: number): void {
    const { maxBytes, withinMs } = this.#options;
    const name = request.caller?.name;
    request.countForCaller();
    const own = this.#callers.get(name) ?? { caller: name, replies: new Set(), bytes: 0 };
    while (this.#bytes + bytes > maxBytes) this.#makeRoom(own, bytes);
    this.#callers.set(name, own);
    const reply: Buffered = { requestId, bytes, request };
    own.replies.add(reply);
    own.bytes += bytes;
    this.#bytes += bytes;
    const timer = setTimeout(() => this.#destroy(own, reply, 'it was not read in time'), withinMs);
    timer.unref();
    request.onceDone(() => {
      clearTimeout(timer);
      this.#forget(own, reply);
    });
  }

  /** @param bytes of the new reply, which count for its caller */
  #makeRoom(own: CallerReplies, bytes: number): void {
    let heaviest = own;
    let most = own.bytes + bytes;
    for (const other of this.#callers.values()) {
      if (other === own || other.bytes <= most) continue;
      heaviest = other;
      most = other.bytes;
    }
    const [oldest] = heaviest.replies;
    const hasMore = heaviest === own || heaviest.replies.size > 1;
    if (oldest === undefined || !hasMore) {
      throw new GatewayError('overloaded', { retryAfterMs: 1_000, reason: 'too many replies are unread' });
    }
    this.#destroy(heaviest, oldest, 'its caller has more unread replies than fit');
  }

  #destroy(holder: CallerReplies, reply: Buffered, reason: string): void {
    const { request } = reply;
    if (request === undefined) return;
    const { requestId, bytes } = reply;
    // At once, and not when the connection says that it has ended: the room is for the reply that comes now.
    this.#forget(holder, reply);
    request.destroy();
    this.#options.onUnread({ caller: holder.caller, requestId, bytes, reason });
  }

  #forget(holder: CallerReplies, reply: Buffered): void {
    if (!holder.replies.delete(reply)) return;
    reply.request = undefined;
    holder.bytes -= reply.bytes;
    this.#bytes -= reply.bytes;
    if (holder.replies.size === 0) this.#callers.delete(holder.caller);
  }
}

/** Answers `overloaded` only where the callers that do not read are too many for one reply of each. */
export function limitBufferedResponses(options: BufferedResponsesOptions): Layer<InboundRequest, Reply> {
  const buffered = new BufferedReplies(options);
  return (next) =>
    function limit(request, trace) {
      return andThen(next(request, trace), (reply) => {
        const bytes = reply.body === null ? 0 : reply.body.length;
        if (request.caller === undefined) request.countForConnection(bytes);
        else if (bytes >= socketBufferBytes || request.isQueued) {
          buffered.add(request, trace.requestId, bytes);
        }
        return reply;
      });
    };
}
