import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { limitBufferedResponses, type UnreadReply } from '../../src/edge/buffered-responses.ts';
import type { InboundRequest } from '../../src/edge/inbound.ts';
import { Trace } from '../../src/exchange/trace.ts';

let unread: UnreadReply[] = [];
beforeEach(() => {
  vi.useFakeTimers();
  unread = [];
});
afterEach(() => {
  vi.useRealTimers();
});

/** @param name of its caller; `undefined` for a request without one */
function requestOf(name: string | undefined, isQueued = false) {
  let done = () => {};
  const request = {
    caller: name === undefined ? undefined : { name },
    isQueued,
    countForCaller: vi.fn(),
    countForConnection: vi.fn(),
    destroy: vi.fn(() => done()),
    onceDone(listener: () => void) {
      done = listener;
    },
  };
  return { request: request as unknown as InboundRequest & typeof request, done: () => done() };
}

/** A layer whose replies have as many bytes as the request's query says. */
function limited(maxBytes: number) {
  let bytes = 0;
  const handler = limitBufferedResponses({ maxBytes, withinMs: 1_000, onUnread: (one) => unread.push(one) })(
    () => ({ status: 200, fields: [], body: Buffer.alloc(bytes) }),
  );
  return (from: ReturnType<typeof requestOf>, size = 100_000) => {
    bytes = size;
    return handler(from.request, new Trace(0));
  };
}

describe('unread replies', () => {
  it('an unread reply ends with its connection after its time, and then counts no more', () => {
    const give = limited(250_000);
    const slow = requestOf('slow');
    void give(slow);
    vi.advanceTimersByTime(999);
    expect(slow.request.destroy).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(slow.request.destroy).toHaveBeenCalledOnce();
    expect(unread).toMatchObject([{ caller: 'slow', bytes: 100_000, reason: 'it was not read in time' }]);
    for (const name of ['a', 'b']) expect(give(requestOf(name))).toMatchObject({ status: 200 });
  });

  it('a reply that was read in time keeps its connection', () => {
    const good = requestOf('good');
    void limited(250_000)(good);
    good.done();
    vi.advanceTimersByTime(5_000);
    expect(good.request.destroy).not.toHaveBeenCalled();
    expect(unread).toEqual([]);
  });

  it('the oldest unread reply of the caller that holds the most makes room for a new reply', () => {
    const give = limited(450_000);
    const deaf = Array.from({ length: 3 }, () => requestOf('deaf'));
    for (const one of deaf) void give(one);
    void give(requestOf('good'));
    expect(give(requestOf('other'))).toMatchObject({ status: 200 });
    expect(deaf.map(({ request }) => request.destroy.mock.calls.length)).toEqual([1, 0, 0]);
    expect(give(requestOf('deaf'))).toMatchObject({ status: 200 });
    expect(deaf.map(({ request }) => request.destroy.mock.calls.length)).toEqual([1, 1, 0]);
  });

  it('a caller’s only unread reply keeps its room, and a further caller gets overloaded', () => {
    const give = limited(250_000);
    const [one, two] = [requestOf('one'), requestOf('two')];
    void give(one);
    void give(two);
    expect(() => give(requestOf('three'))).toThrow(expect.objectContaining({ code: 'overloaded' }));
    one.done();
    expect(give(requestOf('three'))).toMatchObject({ status: 200 });
    expect(two.request.destroy).not.toHaveBeenCalled();
  });

  it('a reply counts for its caller or for its connection, never for both', () => {
    const give = limited(250_000);
    const named = requestOf('a');
    void give(named);
    expect(named.request.countForCaller).toHaveBeenCalledOnce();
    const small = requestOf('a');
    void give(small, 60_000);
    expect(small.request.countForCaller).not.toHaveBeenCalled();
    for (const size of [100_000, 60_000]) {
      const stranger = requestOf(undefined, true);
      void give(stranger, size);
      expect(stranger.request.countForConnection).toHaveBeenCalledExactlyOnceWith(size);
      expect(stranger.request.countForCaller).not.toHaveBeenCalled();
    }
    expect(named.request.countForConnection).not.toHaveBeenCalled();
  });

  it('a small reply counts only while it waits behind an earlier one of its connection', () => {
    const give = limited(250_000);
    for (const name of ['a', 'b']) void give(requestOf(name));
    expect(give(requestOf('c'), 60_000)).toMatchObject({ status: 200 });
    expect(() => give(requestOf('c', true), 60_000)).toThrow(expect.objectContaining({ code: 'overloaded' }));
  });
});
