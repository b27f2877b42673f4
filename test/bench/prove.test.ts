/** What `npm run prove` holds other people's servers and the gateway against. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Faults, judgeLink, judgeUpstream, originForm, reads } from '../../bench/prove/http/judge.ts';
import { readResponses, readStrictly } from '../../bench/prove/http/strict-parser.ts';
import { isPassed } from '../../bench/prove/suite.ts';
import { type StandIn, standInKey } from '../support/stand-in/stand-in.ts';

const get = (id: number, more = ''): string =>
  `GET ${reads}?n=${id} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`;
const answer = (id: number): string => {
  const body = JSON.stringify({ target: `${reads}?n=${id}` });
  return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
};
const refusal = 'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n';

function faultsIn(sent: string, answered: string, upstream: number[] = []): Faults {
  const faults: Faults = new Map();
  const link = { sent: () => sent, answered: () => answered };
  judgeLink(link, faults, originForm);
  const requests = upstream.map((id) => ({
    target: `${reads}?n=${id}`,
    method: 'GET',
    key: standInKey,
    rawHeaders: ['X-API-Key', standInKey],
  }));
  judgeUpstream({ requests } as unknown as StandIn, [link], faults, originForm);
  return faults;
}

describe('the strict reader of npm run prove', () => {
  it.each([
    ['two requests', get(1) + get(2), 'whole', 2],
    ['a body by its length', `${get(1, 'Content-Length: 3\r\n')}abc${get(2)}`, 'whole', 2],
    [
      'a chunked body',
      `${get(1, 'Transfer-Encoding: chunked\r\n')}3;a=b\r\nabc\r\n0\r\n\r\n${get(2)}`,
      'whole',
      2,
    ],
    ['a request that goes on', get(1) + get(2).slice(0, -2), 'cut', 1],
    ['a bare LF', get(1).replace('\r\n', '\n'), 'invalid', 0],
    ['a bare CR', get(1, 'X: a\rb\r\n'), 'invalid', 0],
    ['a folded field', get(1, 'X: a\r\n b\r\n'), 'invalid', 0],
    ['a space before the colon', get(1, 'X : a\r\n'), 'invalid', 0],
    ['two lengths', `${get(1, 'Content-Length: 3\r\nContent-Length: 3\r\n')}abc`, 'invalid', 0],
    ['a length and chunks', `${get(1, 'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n')}`, 'invalid', 0],
    ['a chunk line that ends in LF', `${get(1, 'Transfer-Encoding: chunked\r\n')}0;\n\r\n`, 'invalid', 0],
    ['no version', 'GET /\r\nHost: localhost\r\n\r\n', 'invalid', 0],
  ])('the strict reader of npm run prove takes %s for what it is', (_, bytes, end, count) => {
    const reading = readStrictly(bytes);
    expect([reading.end, reading.requests.length]).toEqual([end, count]);
  });

  const chunked = 'Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n';

  it.each([
    ['two answers', answer(1) + answer(2), 2],
    ['an empty line before the status line', `${answer(1)}\r\n${answer(2)}`, 2],
    ['chunks', `HTTP/1.1 200 OK\r\n${chunked}${answer(2)}`, 2],
    ['chunks in HTTP/1.0, behind which there is nothing', `HTTP/1.0 200 OK\r\n${chunked}${answer(2)}`, 1],
    ['another protocol', `ICY 200 OK\r\n\r\n${answer(2)}`, 0],
  ])('the strict reader of npm run prove takes answers for what they are: %s', (_, bytes, count) => {
    expect(readResponses(bytes, [])).toHaveLength(count);
  });
});

describe('npm run prove', () => {
  const hiding = `${get(1, 'Content-Length: 45\r\n')}${get(2)}`.slice(0, -1);

  it.each<[string, Faults, number]>([
    ['an answer to each request', faultsIn(get(1) + get(2), answer(1) + answer(2), [1, 2]), 0],
    ['a refusal of what no strict reader takes', faultsIn(`${get(1)}G\n`, answer(1) + refusal, [1]), 0],
    ['an answer to a request that stood in a body', faultsIn(hiding, answer(1) + answer(2), [1, 2]), 1],
    ['an answer to another request', faultsIn(get(1), answer(2), [2]), 2],
    ['a request that went up twice', faultsIn(get(1), answer(1), [1, 1]), 1],
    ['two refusals of one message', faultsIn('G\n', refusal + refusal), 1],
  ])('npm run prove finds faults where there are any: %s', (_, faults, count) => {
    expect(faults.size).toBe(count);
  });

  it('npm run prove takes a row for passed where all its cases passed', () => {
    expect(isPassed('| http | nginx | 1.22.1 | 12 | 12 | nothing |')).toBe(true);
    expect(isPassed('| http | nginx | 1.22.1 | 12 | 11 | nothing |')).toBe(false);
    expect(isPassed('| http | nginx | 1.22.1 | 0 | 0 | nothing |')).toBe(false);
  });
});

it('the files of prove mutants exist, and so do the tests that own them', () => {
  const root = new URL('../../', import.meta.url);
  const table = readFileSync(new URL('bench/prove/mutants.ts', root), 'utf8').split('const owners')[1] ?? '';
  const rows = [...table.matchAll(/^ {2}'([^']+)\.ts': \[([^\]]*)\]/gm)];
  expect(rows.length).toBeGreaterThan(15);
  const paths = rows.flatMap(([, file = '', owners = '']) => {
    const named = [...owners.matchAll(/'([^']+)'/g)].map(([, name = '']) => name);
    return [`src/${file}.ts`, ...(named.length > 0 ? named : [file]).map((name) => `test/${name}.test.ts`)];
  });
  expect(paths.filter((path) => !existsSync(new URL(path, root)))).toEqual([]);
});
