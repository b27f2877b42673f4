/** What waits at the gate, by caller. Pure: no `this`, no I/O, no clock. */
import type { GateSnapshot, Queued } from '../gate/types.ts';

/** What waits of one caller: requests, and background refreshes, which delay no answer. */
export interface CallerQueue {
  readonly name: string;
  readonly length: number;
  /** Of the requests. */
  readonly oldestWaitMs: number;
  readonly refreshes: number;
}

/** The gate as it is shown. */
export type ShownGate = Omit<GateSnapshot, 'queued'> & { readonly callers: readonly CallerQueue[] };

export function showGate({ queued, ...gate }: GateSnapshot, nowMs: number): ShownGate {
  return { ...gate, callers: queuesByCaller(queued, nowMs) };
}

export function queuesByCaller(all: readonly Queued[], nowMs: number): CallerQueue[] {
  const places = all.flatMap(({ arrivedMs, context }) =>
    context.flows.map((flow) => ({ arrivedMs, ...flow })),
  );
  return [...Map.groupBy(places, ({ name }) => name)].map(([name, queued]) => {
    const requests = queued.filter(({ background }) => !background);
    const oldestWaitMs = Math.max(0, ...requests.map(({ arrivedMs }) => nowMs - arrivedMs));
    return { name, length: requests.length, oldestWaitMs, refreshes: queued.length - requests.length };
  });
}
