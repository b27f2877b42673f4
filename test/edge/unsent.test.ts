import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { InboundRequest } from '../../src/edge/inbound.ts';
import { boundUnsent } from '../../src/edge/unsent.ts';
import { Trace } from '../../src/trace.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function caller() {
  let done = () => {};
  const request = {
    cut: vi.fn(() => done()),
    onceDone(listener: () => void) {
      done = listener;
    },
  };
  return { request: request as unknown as InboundRequest & typeof request, done: () => done() };
}

describe('replies that wait to be read', () => {
  const layer = boundUnsent({ maxBytes: 250_000, withinMs: 1_000 });
  const answer = (bytes: number) => layer(() => ({ status: 200, fields: [], body: Buffer.alloc(bytes) }));
  const give = (request: InboundRequest, bytes = 100_000) => answer(bytes)(request, new Trace(0));

  it('are cut off after their time, and then count no more', () => {
    const slow = caller();
    void give(slow.request);
    vi.advanceTimersByTime(999);
    expect(slow.request.cut).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(slow.request.cut).toHaveBeenCalledOnce();
  });

  it('are not cut off once they are read', () => {
    const good = caller();
    void give(good.request);
    good.done();
    vi.advanceTimersByTime(5_000);
    expect(good.request.cut).not.toHaveBeenCalled();
  });

  it('are bounded together, small ones aside', () => {
    const bounded = boundUnsent({ maxBytes: 250_000, withinMs: 1_000 })((request) => ({
      status: 200,
      fields: [],
      body: request.method === 'small' ? Buffer.alloc(1_000) : Buffer.alloc(100_000),
    }));
    const callers = Array.from({ length: 3 }, caller);
    const ask = (index: number) => bounded(callers[index]?.request as InboundRequest, new Trace(0));
    void ask(0);
    void ask(1);
    expect(() => ask(2)).toThrow(expect.objectContaining({ code: 'overloaded' }));
    callers[0]?.done();
    expect(ask(2)).toMatchObject({ status: 200 });
  });
});
