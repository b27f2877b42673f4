import { describe, expect, it } from 'vitest';
import { type Judged, judge } from '../../bench/fuzz/judge.ts';
import { readReplies } from '../../bench/fuzz/replies.ts';

const key = 'wk_test+3f9d/71c2';
const sent: Judged = {
  listener: 'public',
  bytes: Buffer.from('GET /api/analytics/accounts/ HTTP/1.1\r\nHost: localhost\r\n\r\n'),
  ending: 'waits',
  hasAnswer: false,
};
const came = (text: string, more: { hung?: boolean; wasReset?: boolean } = {}) => ({
  bytes: Buffer.from(text, 'latin1'),
  hung: false,
  wasReset: false,
  ...more,
});
const good = 'HTTP/1.1 200 OK\r\nX-Request-ID: case-1\r\nContent-Length: 2\r\n\r\n{}';
const faultsOf = (text: string, more = {}, request: Partial<Judged> = {}): readonly string[] =>
  judge({ ...sent, ...request }, came(text, more), [key]).faults;

describe('the fuzzer’s reading of replies', () => {
  it('the fuzzer’s reading of replies takes a connection apart into its replies', () => {
    const { replies, fault, isCut } = readReplies(Buffer.from(good + good), false);
    expect(replies.map(({ status, body }) => [status, body.toString()])).toEqual([
      [200, '{}'],
      [200, '{}'],
    ]);
    expect(fault).toBeUndefined();
    expect(isCut).toBe(false);
  });

  it.each([
    ['a status line of another version', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['a field line without a name', 'HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 0\r\n\r\n'],
    ['a bare LF in a field', 'HTTP/1.1 200 OK\r\nX: a\nb\r\nContent-Length: 0\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n'],
    ['no length', 'HTTP/1.1 200 OK\r\n\r\n'],
    ['an interim response', `HTTP/1.1 100 Continue\r\n\r\n${good}`],
    [
      'bytes after the last reply',
      `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n${good}`,
    ],
  ])('the fuzzer’s reading of replies finds %s', (_name, text) => {
    expect(readReplies(Buffer.from(text), false).fault).toBeDefined();
  });
});

describe('the fuzzer’s judgement', () => {
  it('the fuzzer’s judgement finds nothing wrong with a good reply, which must have its line', () => {
    expect(judge(sent, came(good), [key])).toEqual({ faults: [], logged: [{ id: 'case-1', status: 200 }] });
  });

  it.each<[fault: string, faults: readonly string[]]>([
    ['the connection hung', faultsOf(good, { hung: true })],
    ['a reply that is cut', faultsOf(good.slice(0, -1))],
    ['no reply to a whole head', faultsOf('')],
    ['the status 302', faultsOf('HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n')],
    ['the status 500', faultsOf('HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n')],
    [
      'the status 206',
      faultsOf('HTTP/1.1 206 OK\r\nCache-Status: x\r\nContent-Length: 0\r\n\r\n', {}, { hasAnswer: true }),
    ],
    ['secret 1 got out (raw)', faultsOf(`HTTP/1.1 200 OK\r\nX: ${key}\r\nContent-Length: 0\r\n\r\n`)],
    [
      'secret 1 got out (hex)',
      faultsOf(`HTTP/1.1 200 ${Buffer.from(key).toString('hex')}\r\nContent-Length: 0\r\n\r\n`),
    ],
  ])('the fuzzer’s judgement finds: %s', (fault, faults) => {
    expect(faults).toContain(fault);
  });
});
