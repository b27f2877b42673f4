import { describe, expect, it } from 'vitest';
import { readTraceParent, readTraceState } from '../../src/edge/request-ids.ts';

const ids = '4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7';

describe('a traceparent (W3C Trace Context section 3.2)', () => {
  it.each<[string, string | undefined, string | undefined]>([
    ['of version 00 is sent as it came', `00-${ids}-01`, `00-${ids}-01`],
    ['with unknown flags is sent as it came', `00-${ids}-ff`, `00-${ids}-ff`],
    ['of a later version is sent as version 00', `cc-${ids}-01`, `00-${ids}-01`],
    ['of a later version loses what version 00 does not have', `cc-${ids}-03-what-else`, `00-${ids}-01`],
    ['of a later version that is not sampled stays so', `01-${ids}-02-`, `00-${ids}-00`],
    ['of any length is sent in 55 characters', `01-${ids}-00-${'x'.repeat(9000)}`, `00-${ids}-00`],
    ['of version 00 with more members is dropped', `00-${ids}-01-more`, undefined],
    ['of version 00 with a trailing dash is dropped', `00-${ids}-01-`, undefined],
    ['of a later version without a dash before more is dropped', `01-${ids}-01more`, undefined],
    ['of version ff is dropped', `ff-${ids}-01`, undefined],
    ['in upper case is dropped', `00-${ids.toUpperCase()}-01`, undefined],
    ['with a trace id of zeros is dropped', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, undefined],
    [
      'with a parent id of zeros is dropped',
      `00-4bf92f3577b34da6a3ce929d0e0e4736-${'0'.repeat(16)}-01`,
      undefined,
    ],
    ['that is too short is dropped', '00-0-0-01', undefined],
    ['that came twice is dropped', `00-${ids}-01, 00-${ids}-01`, undefined],
    ['that is empty is dropped', '', undefined],
    ['that is absent is absent', undefined, undefined],
  ])('a traceparent %s', (_, value, expected) => {
    expect(readTraceParent(value)).toBe(expected);
  });
});

describe('a tracestate (W3C Trace Context section 3.3)', () => {
  const members = (count: number) => Array.from({ length: count }, (_, at) => `k${at}=v`).join(',');
  it.each<[string, string]>([
    ['with one member', 'a=b'],
    ['with space around members', 'a=b , c=d\t'],
    ['with empty members', ',a=b,,c=d,'],
    ['with the key of a tenant', '0t_-*/@sys*/=x'],
    ['with spaces within a value', 'a= b c'],
    ['with 32 members', members(32)],
    ['of 512 characters', `a=${'x'.repeat(251)},b=${'x'.repeat(256)}`],
  ])('a tracestate %s is sent as it came', (_, value) => {
    expect(readTraceState(value)).toBe(value);
  });
  it.each<[string, string | undefined]>([
    ['that is absent', undefined],
    ['that is empty', ''],
    ['of empty members alone', ' , ,'],
    ['of 513 characters', `a=${'x'.repeat(252)},b=${'x'.repeat(256)}`],
    ['of 9,000 characters', `a=${'x'.repeat(9000)}`],
    ['with 33 members', members(33)],
    ['with 33 members of which one is empty', `${members(32)},`],
    ['with hundreds of empty members', `a=b${','.repeat(400)}`],
    ['with a value of 257 characters', `a=${'x'.repeat(257)}`],
    ['without a value', 'a='],
    ['without an equals sign', 'a'],
    ['with a second equals sign', 'a=b=c'],
    ['with a key in upper case', 'A=b'],
    ['with a key that begins with a digit', '1=b'],
    ['with a key that begins with an at sign', '@a=b'],
    ['with a tenant in a system of 15 characters', 'a@aaaaaaaaaaaaaaa=b'],
    ['with the same key twice', 'a=b,c=d,a=e'],
    ['with a tab within a value', 'a=b\tc'],
    ['with a character beyond ASCII', 'a=b\xe9'],
  ])('a tracestate %s is dropped', (_, value) => {
    expect(readTraceState(value)).toBeUndefined();
  });
});
