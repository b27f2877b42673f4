import { describe, expect, it } from 'vitest';
import type { AccessLine } from '../../src/edge/access-log.ts';
import { accessJson } from '../../src/log/logger.ts';

const hit: AccessLine = {
  requestId: 'r-1',
  traceId: undefined,
  trace_id: undefined,
  span_id: undefined,
  trace_flags: undefined,
  caller: 'script',
  subject: undefined,
  by: 'token',
  note: undefined,
  would: undefined,
  method: 'GET',
  workspace: undefined,
  operation: 'accounts.list',
  status: 200,
  problem: undefined,
  reason: undefined,
  cause: undefined,
  refusal: undefined,
  cache: 'hit',
  attempts: 0,
  upstreamStatus: undefined,
  generation: 1,
  gate: undefined,
  waitedMs: 0,
  upstreamMs: 0,
  totalMs: 0.1,
};

describe('an access line as JSON', () => {
  it('an access line has its own members, whatever was remembered of others', () => {
    const write = accessJson();
    const variants: Partial<AccessLine>[] = [
      {},
      { caller: undefined },
      { caller: 'one"more\n' },
      { requestId: 'r"\\2' },
      { traceId: '4bf92f3577b34da6a3ce929d0e0e4736', trace_id: '4bf92f3577b34da6a3ce929d0e0e4736' },
      { span_id: '00f067aa0ba902b7' },
      { trace_flags: '01' },
      { by: 'jwt' },
      { by: 'jwt', subject: 'a"b' },
      { note: 'an older token' },
      { method: 'HEAD' },
      { operation: undefined },
      { status: 404, problem: 'unknown-operation' },
      { status: 404, problem: 'unknown-operation', reason: 'no such path' },
      { cause: 'Error: x' },
      { cache: 'miss', attempts: 2 },
      { cache: 'miss', attempts: 3 },
      { upstreamStatus: 500 },
      { generation: 2 },
      { gate: 'closed' },
      { waitedMs: 1.5 },
      { upstreamMs: 2.5 },
      { totalMs: 3.5 },
      // And whatever a line may have one day.
      ...Object.entries(hit).map(([name, value]) => ({ [name]: typeof value === 'number' ? 77 : 'other' })),
    ];
    // Thrice: made anew, remembered, and with most of it forgotten again.
    for (let round = 0; round < 3; round++) {
      for (const more of variants) {
        const line = { ...hit, ...more };
        expect(JSON.parse(`{${write(line)}}`)).toEqual(JSON.parse(JSON.stringify(line)));
        expect(JSON.parse(`{${write({ ...line, requestId: 'again' })}}`)).toMatchObject({
          requestId: 'again',
        });
      }
    }
  });

  it('the recurring part of an access line is remembered for all callers together', () => {
    const write = accessJson();
    let made = 0;
    const counted = (caller: string): AccessLine => ({
      ...hit,
      caller,
      // Only who writes all members anew asks for this one's JSON.
      note: { toJSON: () => `${made++}` } as unknown as string,
    });
    const first = counted('first');
    write(first);
    for (let other = 0; other < 1_000; other++) write({ ...first, caller: `caller-${other}` });
    expect(made).toBe(1);
  });
});
