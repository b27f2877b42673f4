import { afterEach, describe, expect, it, vi } from 'vitest';
import { Trace } from '../../src/exchange/trace.ts';
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

it('the span of an attempt has an IPv6 address of the upstream without brackets', () => {
  const startSpan = vi.fn().mockReturnValue({ spanContext: () => ({}) });
  const api = { trace: {}, SpanKind: {}, SpanStatusCode: {} } as OtelApi;
  const tracing = new Tracing(api, { startSpan }, async () => {}, { paths: new Map(), scheme: 'http' });
  tracing
    .spansOf('', new URL('https://[2001:db8::1]/api'))
    .beginAttempt(new Trace(0), 'list-accounts', false);
  const attributes = expect.objectContaining({ 'server.address': '2001:db8::1', 'server.port': 443 });
  expect(startSpan.mock.calls).toEqual([['GET', expect.objectContaining({ attributes }), undefined]]);
});
