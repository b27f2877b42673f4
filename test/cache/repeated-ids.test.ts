import { describe, expect, it } from 'vitest';
import { repeatsIds } from '../../src/cache/cache-key.ts';

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
const down = (name: string): boolean => name !== 'x-request-id';

const repeats = (
  ids: Record<string, string>,
  body: string,
  headers: Record<string, string> = {},
): boolean => {
  const answers = [
    { body, headers },
    { body: Buffer.from(body, 'latin1'), headers },
  ];
  const [asText, asBytes] = answers.map((answer) => repeatsIds(answer, ids, down));
  expect(asText).toBe(asBytes);
  return asText as boolean;
};

describe('an answer repeats an id of its caller', () => {
  it.each<[string, Record<string, string>, string]>([
    ['the request id', { 'x-request-id': 'evil-text' }, '{"id":"evil-text"}'],
    ['the request id at the end', { 'x-request-id': 'evil-text' }, 'evil-text'],
    ['a request id of eight characters', { 'x-request-id': 'evil1234' }, '{"id":"evil1234"}'],
    ['the first and the last letter in upper case', { 'x-request-id': 'aaaazzzz' }, 'AAAAZZZZ'],
    ['the request id in upper case', { 'x-request-id': 'Evil-Text' }, '{"id":"EVIL-TEXT"}'],
    [
      'the request id as JSON escapes it',
      { 'x-request-id': 'http://evil/' },
      String.raw`{"id":"http:\/\/evil\/"}`,
    ],
    [
      'the request id percent-encoded',
      { 'x-request-id': 'http://evil/' },
      '{"next":"?id=http%3a%2F%2Fevil%2F"}',
    ],
    [
      'the request id with escapes for HTML',
      { 'x-request-id': 'evil+text' },
      String.raw`{"id":"evil\u002Btext"}`,
    ],
    ['behind many beginnings of it', { 'x-request-id': 'evil-text' }, `${'evil-tex '.repeat(9)}evil-text`],
    ['behind an overlapping beginning', { 'x-request-id': 'ababababac' }, 'abababababac'],
    ['the trace id', { traceparent }, `{"trace":"${traceId}"}`],
    ['the parent id', { traceparent }, '{"span":"00f067aa0ba902b7"}'],
    ['a tracestate', { traceparent, tracestate: 'a=1,b=2,c=3' }, '{"state":"a=1,b=2,c=3"}'],
    ['one value of a tracestate', { traceparent, tracestate: 'a=1, b=<script>' }, '{"b":"<script>"}'],
    ['one member of a tracestate', { traceparent, tracestate: 'a=1, evil-text=2' }, '"evil-text=2"'],
    ['one name in a tracestate', { traceparent, tracestate: 'evil-text=2,b=3' }, '{"evil-text":"2"}'],
    [
      'a quoted value of a tracestate',
      { traceparent, tracestate: 'a="evil text"' },
      String.raw`["\"evil text\""]`,
    ],
  ])('an answer repeats %s', (_, ids, body) => {
    expect(repeats(ids, body)).toBe(true);
    expect(repeats(ids, 'no', { etag: body })).toBe(true);
  });

  it.each<[string, Record<string, string>, string]>([
    ['a part of the request id', { 'x-request-id': 'evil-text' }, '{"id":"evil-tex"}'],
    ['the request id in pieces', { 'x-request-id': 'evil-text' }, '{"id":"evil","of":"-text"}'],
    ['a request id too short to mean something', { 'x-request-id': '1234567' }, '{"id":"1234567"}'],
    ['the flags of a traceparent', { traceparent }, '{"version":"00","flags":"01"}'],
    ['nothing', { 'x-request-id': 'evil-text', traceparent, tracestate: 'a=1' }, '{}'],
    ['nothing, and is empty', { 'x-request-id': 'evil-text' }, ''],
  ])('an answer that holds %s repeats no id', (_, ids, body) => {
    expect(repeats(ids, body)).toBe(false);
  });

  it('an id in a field that reaches no caller is none that is repeated', () => {
    const ids = { 'x-request-id': 'evil-text' };
    expect(repeats(ids, '{}', { 'x-request-id': 'evil-text' })).toBe(false);
    expect(repeats(ids, '{}', { 'x-trace': 'evil-text' })).toBe(true);
    expect(repeats(ids, '{}', { 'x-a': 'evil', 'x-b': '-text' })).toBe(false);
  });

  it('an answer made of the beginnings of an id counts as one that repeats it, instead of costing a comparison at each byte', () => {
    const ids = { 'x-request-id': `${'a'.repeat(127)}b` };
    expect(repeats(ids, 'a'.repeat(40))).toBe(false);
    expect(repeats(ids, 'a'.repeat(10_000))).toBe(true);
  });
});
