/** The rate-limited stand-in in a process of its own: told what to do and asked for its counts by messages. */
import { type StandIn, startStandIn } from '../../test/support/stand-in/stand-in.ts';

export interface Limit {
  readonly perSecond: number;
  readonly burst: number;
  /** What each 429 asks for; undefined: it says nothing. */
  readonly retryAfterSeconds: number | undefined;
}

export type Order =
  | { readonly kind: 'start'; readonly limit: Limit; readonly latencyMs: number }
  | { readonly kind: 'limit'; readonly limit: Limit }
  | { readonly kind: 'count' };

export type Report =
  | { readonly kind: 'started'; readonly url: string }
  | { readonly kind: 'counted'; readonly answered: number; readonly refused: number };

let standIn: StandIn | undefined;

function limitOf({ perSecond, burst, retryAfterSeconds }: Limit) {
  return retryAfterSeconds === undefined
    ? { perSecond, burst, retryAfter: 'none' as const }
    : { perSecond, burst, retryAfter: 'seconds' as const, retryAfterSeconds };
}

async function obey(order: Order): Promise<void> {
  if (order.kind === 'start') {
    standIn = await startStandIn({
      limit: limitOf(order.limit),
      latencyMs: order.latencyMs,
      recordRequests: false,
      accounts: 1,
    });
    report({ kind: 'started', url: standIn.url });
  } else if (order.kind === 'limit') standIn?.setLimit(limitOf(order.limit));
  else {
    const counts = standIn?.counts.byStatus ?? {};
    report({ kind: 'counted', answered: counts[200] ?? 0, refused: counts[429] ?? 0 });
  }
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (order: Order) => void obey(order));
// The storm is over, however it ended.
process.on('disconnect', () => process.exit(0));
