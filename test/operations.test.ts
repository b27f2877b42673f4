import { describe, expect, it } from 'vitest';
import {
  configuredOperations,
  matchOperations,
  operationsOf,
  problemOfQuery,
  specifiedOperations,
} from '../src/operations.ts';

const match = matchOperations([
  ...specifiedOperations,
  ...configuredOperations(['/analytics/posts/', '/analytics/reports/:id/', '/analytics/export/:id/file.csv']),
]);

describe('an operation is matched on the raw path', () => {
  it.each([
    ['/analytics/accounts/', 'list-accounts', '/analytics/accounts/'],
    ['/analytics/accounts', 'list-accounts', '/analytics/accounts/'],
    ['/users/api-keys/', 'list-api-keys', '/users/api-keys/'],
    ['/users/api-keys', 'list-api-keys', '/users/api-keys/'],
    ['/analytics/posts', '/analytics/posts/', '/analytics/posts/'],
    ['/analytics/reports/a.b-c_d~1', '/analytics/reports/:id/', '/analytics/reports/a.b-c_d~1/'],
    ['/analytics/reports/.../', '/analytics/reports/:id/', '/analytics/reports/.../'],
    ['/analytics/export/7/file.csv/', '/analytics/export/:id/file.csv', '/analytics/export/7/file.csv'],
  ])('the raw path %s is %s', (path, name, upstream) => {
    expect(match(path)).toMatchObject({ operation: { name }, path: upstream });
  });

  it.each([
    '',
    '/',
    '/analytics',
    '/analytics/accounts//',
    '//analytics/accounts/',
    '/analytics//accounts/',
    '/Analytics/accounts/',
    '/analytics/accounts/x',
    '/analytics/./accounts/',
    '/analytics/../analytics/accounts/',
    '/analytics/%61ccounts/',
    '/analytics%2faccounts/',
    '/%2e%2e/analytics/accounts/',
    '/analytics/accounts/%00',
    '/analytics/accounts/\0',
    '/analytics\\accounts/',
    '/analytics/accounts;x=1/',
    '/analytics/accounts/.',
    '/analytics/accounts/..',
    '/analytics/accounts/#',
    '/analytics/reports/',
    '/analytics/reports/./',
    '/analytics/reports/../',
    '/analytics/reports/a%2fb/',
    '/analytics/reports/a/b/',
    '/x/analytics/reports/a/',
    '/analytics/reports/a;b/',
    '/analytics/reports/ü/',
    '/analytics/export/7/fileXcsv',
    '/analytics/reports/a\n/',
    '/analytics/accounts/\n',
  ])('%j is none', (path) => {
    expect(match(path)).toBeUndefined();
  });
});

it('a literal path wins over a pattern that fits too, wherever it stands in the list', () => {
  const found = matchOperations(configuredOperations(['/posts/:id/', '/posts/latest/']))('/posts/latest');
  expect(found).toMatchObject({ operation: { name: '/posts/latest/' }, path: '/posts/latest/' });
});

it('callers may read what the specification has, and what the operator allows besides', () => {
  const names = operationsOf({ UPSTREAM_READS: ['/posts/'] }).map(({ name }) => name);
  expect(names).toEqual(['list-accounts', 'list-api-keys', '/posts/']);
});

describe('a query goes up unless it carries a key', () => {
  it.each([
    'api_key=1',
    'apikey=1',
    'api-key=1',
    'x-api-key=1',
    'X-API-Key',
    'API_KEY=',
    'a=1&Api-Key=2',
    'api%5fkey=1',
    'api%255Fkey=1',
    '%61pikey=1',
    'a=1;apikey=2',
    'x_api_key=3',
    'api_key[]=1',
    '+api_key=1',
    'xapikey=1',
  ])('the query %s is refused', (query) => {
    expect(problemOfQuery(query)).toContain('never sent in the URL');
  });

  it.each([
    '',
    'a=1&b=2',
    'q=api_key',
    'keys=1',
    'my_api_key=1',
    'api_keys=1',
    'a=%20b&a=c',
    'x=[1,2]&y={"a":1}',
  ])('the query %s passes', (query) => {
    expect(problemOfQuery(query)).toBeUndefined();
  });

  it.each(['a=\u00e9', 'a=b c', 'a=\x7f', 'a=#b', 'a=\0'])(
    '%j is refused: not bytes for a request line',
    (query) => {
      expect(problemOfQuery(query)).toContain('percent-encoded');
    },
  );
});
