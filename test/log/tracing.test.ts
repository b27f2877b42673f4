import { afterEach, describe, expect, it, vi } from 'vitest';
import { type OtelApi, Tracing } from '../../src/log/tracing.ts';

afterEach(() => void vi.useRealTimers());

describe('the end of tracing', () => {
  it('a collector that takes nothing holds up the end for two seconds, however long the grace is', async () => {
    vi.useFakeTimers();
    const never = new Promise<void>(() => {});
    const tracing = new Tracing({} as OtelApi, { startSpan: vi.fn() }, () => never, {
      paths: new Map(),
      scheme: 'http',
    });
    const started = Date.now();
    const closed = tracing.close(30_000);
    await vi.runAllTimersAsync();
    expect(await closed).toBe(false);
    expect(Date.now() - started).toBe(2_000);
  });
});
