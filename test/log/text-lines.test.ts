import { describe, expect, it } from 'vitest';
import { asText } from '../../src/log/text-lines.ts';

/** 13:05:09 where the test runs. */
const time = new Date(2026, 10, 22, 13, 5, 9).getTime();
const text = (members: object): string => asText(`${JSON.stringify({ level: 'info', time, ...members })}\n`);
const hit = {
  ...{ requestId: 'an-id', caller: 'reports', by: 'token', method: 'GET', operation: 'list-accounts' },
  ...{ status: 200, cache: 'hit', attempts: 0, generation: 1, waitedMs: 0, upstreamMs: 0, totalMs: 6.21 },
  msg: 'request',
};

describe('the log as text', () => {
  it.each([
    ['a hit', hit, '13:05:09 GET list-accounts 200 hit 6 ms reports'],
    ['a hit in no time', { ...hit, totalMs: 0.214 }, '13:05:09 GET list-accounts 200 hit 0.21 ms reports'],
    [
      'a read of a workspace that waited',
      { ...hit, cache: 'miss', workspace: 'emea', upstreamStatus: 200, waitedMs: 1_204.6, totalMs: 1_300 },
      '13:05:09 GET list-accounts 200 miss 1300 ms (1205 ms waited) reports workspace=emea',
    ],
    [
      'a refusal',
      {
        ...{ requestId: 'an-id', method: 'GET', status: 404, path: '/api/x', problem: 'unknown-operation' },
        ...{ reason: 'no operation at this path', totalMs: 1, waitedMs: 0, msg: 'request' },
      },
      '13:05:09 GET /api/x 404 1 ms requestId=an-id problem=unknown-operation reason="no operation at this path"',
    ],
    [
      'a failure',
      {
        ...hit,
        level: 'warn',
        status: 502,
        cache: 'miss',
        problem: 'upstream-unreachable',
        upstreamStatus: 503,
      },
      '13:05:09 WARN GET list-accounts 502 miss 6 ms reports requestId=an-id problem=upstream-unreachable upstreamStatus=503',
    ],
    [
      'an event',
      { url: 'http://127.0.0.1:8080', version: '0.1.0', msg: 'listening' },
      '13:05:09 listening url=http://127.0.0.1:8080 version=0.1.0',
    ],
    [
      'lists and empty texts',
      { names: ['a', 'b'], reason: '', msg: 'x' },
      '13:05:09 x names=["a","b"] reason=""',
    ],
    [
      'an error',
      {
        level: 'fatal',
        err: { type: 'TypeError', message: 'no', stack: 'TypeError: no\n    at f (x.ts:1)' },
        msg: 'a fault',
      },
      '13:05:09 FATAL a fault err="TypeError: no"\n    at f (x.ts:1)',
    ],
  ])('the log as text shows %s in one line', (_, members, line) => {
    expect(text(members)).toBe(`${line}\n`);
  });

  it('the log as text steers no terminal, whatever a caller sent', () => {
    const evil = '\u001b[2J\u001b]0;x\u0007\r\n\u202e\u0085';
    const line = text({ ...hit, caller: evil, status: 404, path: evil, problem: evil, msg: 'request' });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
    expect(line.slice(0, -1)).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/);
    expect(line).toContain('\\u{1b}[2J');
    expect(asText('no json \u001b[2J\n')).toBe('no json \\u{1b}[2J\n');
  });

  it('the log as text has a line for each line, whole or not', () => {
    expect(asText('{"msg":"a"}\n{"msg":"b"}\n')).toBe('a\nb\n');
    expect(asText('')).toBe('');
    expect(asText('12\n')).toBe('12\n');
  });
});
