import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import { checkKeyAtStart } from '../../src/upstream/credential.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Never answers: only the end of its context ends it. */
const hangs = ({ context }: UpstreamRequest): Promise<Answer> =>
  new Promise((_resolve, reject) => {
    context.watch({ onEnd: reject });
  });

describe('the check of the key', () => {
  it('goes behind the requests of all callers, and asks nothing before there is a key', async () => {
    const asked: UpstreamRequest[] = [];
    const ready = Promise.withResolvers<boolean>();
    const { end } = checkKeyAtStart(
      (request) => {
        asked.push(request);
        return hangs(request);
      },
      ready.promise,
      1_000,
    );
    await vi.advanceTimersByTimeAsync(5_000);
    expect(asked).toEqual([]);
    ready.resolve(true);
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toMatchObject([{ operation: 'list-api-keys', path: '/users/api-keys/' }]);
    expect(asked[0]?.context.flow.background).toBe(true);
    end();
  });

  it('has no outcome once it was ended, whether it was under way or had not begun', async () => {
    const begun = checkKeyAtStart(hangs, Promise.resolve(true), 1_000);
    await vi.advanceTimersByTimeAsync(0);
    begun.end();
    await expect(begun.outcome).resolves.toBeUndefined();
    expect(vi.getTimerCount()).toBe(0);
    const waiting = checkKeyAtStart(hangs, Promise.resolve(true), 1_000);
    waiting.end();
    await expect(waiting.outcome).resolves.toBeUndefined();
  });

  it('ends with a timeout where the upstream says nothing', async () => {
    const { outcome } = checkKeyAtStart(hangs, Promise.resolve(true), 1_000);
    await vi.advanceTimersByTimeAsync(1_000);
    await expect(outcome).resolves.toMatchObject({ code: 'upstream-timeout' });
  });

  it('has no outcome where no key came', async () => {
    await expect(checkKeyAtStart(hangs, Promise.resolve(false), 1_000).outcome).resolves.toBeUndefined();
  });
});
