import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { describeApi } from '../../src/documents/openapi.ts';
import { mergePatch, patchDocument, readOpenApiPatch } from '../../src/documents/openapi-patch.ts';
import { SettingError } from '../../src/errors.ts';
import { specifiedOperations } from '../../src/operations.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';

function written(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-patch-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'openapi-patch.json');
  writeFileSync(file, text);
  return file;
}

function problemsOf(patch: unknown): readonly string[] {
  const file = typeof patch === 'string' ? written(patch) : written(JSON.stringify(patch));
  try {
    readOpenApiPatch(file, specifiedOperations);
    return [];
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    return error.problems;
  }
}

const page = { name: 'page', in: 'query', schema: { type: 'integer' }, description: 'Which page.' };
const withPage = { paths: { '/analytics/accounts/': { get: { parameters: [page] } } } };

describe('a JSON merge patch (RFC 7396)', () => {
  // The examples of its appendix A.
  it.each<[unknown, unknown, unknown]>([
    [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
    [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
    [{ a: 'b' }, { a: null }, {}],
    [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
    [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
    [{ a: 'c' }, { a: ['b'] }, { a: ['b'] }],
    [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
    [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
    [
      ['a', 'b'],
      ['c', 'd'],
      ['c', 'd'],
    ],
    [{ a: 'b' }, ['c'], ['c']],
    [{ a: 'foo' }, null, null],
    [{ a: 'foo' }, 'bar', 'bar'],
    [{ e: null }, { a: 1 }, { e: null, a: 1 }],
    [[1, 2], { a: 'b', c: null }, { a: 'b' }],
    [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ])('a merge patch onto %j of %j gives %j', (target, patch, expected) => {
    expect(mergePatch(target, patch)).toEqual(expected);
  });

  it('a merge patch makes a member of any name, and changes no prototype', () => {
    const merged = mergePatch({}, JSON.parse('{"__proto__":{"x":1}}')) as object;
    expect(Object.hasOwn(merged, '__proto__')).toBe(true);
    expect(Object.getPrototypeOf(merged)).toBe(Object.prototype);
  });
});

describe('the patch of the API document', () => {
  it('a patch adds parameters and schemas, and leaves what it does not name', () => {
    const document = describeApi({ operations: specifiedOperations, admitsAnonymous: false });
    const patch = readOpenApiPatch(written(JSON.stringify(withPage)), specifiedOperations);
    const patched = patchDocument(document, patch);
    const { parameters, get } = patched.paths['/analytics/accounts/'] ?? expect.unreachable();
    expect(get.parameters).toEqual([page]);
    expect(parameters).toEqual(document.paths['/analytics/accounts/']?.parameters);
    expect(patched.components).toEqual(document.components);
  });

  it.each<[string, unknown, RegExp]>([
    ['what is no JSON', '{"paths":{} "x"}', /is no JSON at position 12/],
    ['a list', [], /must hold a JSON object/],
    [
      'an operation that is not there',
      { paths: { '/analytics/acounts/': {} } },
      /paths has \/analytics\/acounts\/, which is no operation; there are \/analytics\/accounts\//,
    ],
    [
      'another method',
      { paths: { '/analytics/accounts/': { post: {} } } },
      /has post, and the gateway answers GET alone/,
    ],
    [
      'an operation without replies',
      { paths: { '/analytics/accounts/': { get: { responses: null } } } },
      /get needs its operationId and responses/,
    ],
    [
      'parameters that are no list',
      { paths: { '/analytics/accounts/': { get: { parameters: { page } } } } },
      /get\.parameters must be a list/,
    ],
    [
      'a parameter without a place',
      { paths: { '/analytics/accounts/': { get: { parameters: [{ name: 'page', schema: {} }] } } } },
      /parameters\[0\] \(page\) needs "in"/,
    ],
    [
      'a parameter without a schema',
      { paths: { '/analytics/accounts/': { get: { parameters: [{ name: 'page', in: 'query' }] } } } },
      /\(page\) needs a schema/,
    ],
    [
      'a parameter twice',
      { paths: { '/analytics/accounts/': { get: { parameters: [page, page] } } } },
      /parameters\[1\] \(page\) is there twice/,
    ],
    [
      'a segment that the path has not',
      { paths: { '/analytics/accounts/': { get: { parameters: [{ ...page, in: 'path' }] } } } },
      /is not in the path/,
    ],
    [
      'a reference to nothing',
      {
        paths: {
          '/analytics/accounts/': { get: { parameters: [{ $ref: '#/components/parameters/Page' }] } },
        },
      },
      /parameters\[0\] refers to #\/components\/parameters\/Page, which is not there/,
    ],
    [
      'a reference elsewhere',
      { components: { schemas: { A: { $ref: 'https://example.com/a.json' } } } },
      /schemas\.A refers to https/,
    ],
    ['components that are gone', { components: null }, /components must stay an object/],
    ['paths that are gone', { paths: null }, /paths must stay an object/],
    ['another version', { openapi: '3.0.0' }, /no longer 3\.1/],
    ['no title', { info: { title: null } }, /info needs a title/],
    ['a misspelled member', { pahts: {} }, /pahts is not known here \(did you mean "paths"\?\)/],
    [
      'a misspelled kind of component',
      { components: { schema: {} } },
      /components\.schema is not known here/,
    ],
    [
      'a misspelled member of a path',
      { paths: { '/analytics/accounts/': { gett: { parameters: [page] } } } },
      /paths\.\/analytics\/accounts\/\.gett is not known here \(did you mean "get"\?\)/,
    ],
    [
      'a misspelled member of an operation',
      { paths: { '/analytics/accounts/': { get: { paramaters: [page] } } } },
      /\.get\.paramaters is not known here \(did you mean "parameters"\?\)/,
    ],
    [
      'a misspelled member of a parameter',
      { paths: { '/analytics/accounts/': { get: { parameters: [{ ...page, requird: true }] } } } },
      /\.get\.parameters\[0\]\.requird is not known here \(did you mean "required"\?\)/,
    ],
  ])('a patch with %s is refused, and says where', (_what, patch, problem) => {
    const problems = problemsOf(patch);
    expect(problems[0]).toMatch(/^OPENAPI_PATCH_FILE: /);
    expect(problems.join('\n')).toMatch(problem);
  });

  it('of a path that is no operation nothing further is said', () => {
    expect(problemsOf({ paths: { '/analytics/accounts': { get: { parameters: [page] } } } })).toEqual([
      expect.stringMatching(/^OPENAPI_PATCH_FILE: paths has \/analytics\/accounts, which is no operation/),
    ]);
  });

  it('a patch may add extensions everywhere, and every member that OpenAPI has', () => {
    const get = { 'x-owner': 'reports', deprecated: true, tags: ['reports'], parameters: [page] };
    const path = { 'x-owner': 'reports', description: 'All accounts.', get };
    const patch = {
      'x-owner': 'reports',
      tags: [{ name: 'reports' }],
      paths: { '/analytics/accounts/': path },
    };
    expect(problemsOf(patch)).toEqual([]);
  });

  it('a file that is not there is a problem of the start', () => {
    expect(() => readOpenApiPatch('/nowhere/patch.json', specifiedOperations)).toThrow(
      'OPENAPI_PATCH_FILE: cannot be read (ENOENT)',
    );
  });

  // A pipe that nothing writes to would hold up the start for ever, and no signal would end it.
  it('what is no file, and what is nested without end, is a problem of the start', () => {
    expect(() => readOpenApiPatch('/dev/null', specifiedOperations)).toThrow(
      'OPENAPI_PATCH_FILE: is a device, not a file',
    );
    const nested = `${'{"x-a":'.repeat(20_000)}1${'}'.repeat(20_000)}`;
    expect(problemsOf(nested)).toEqual(['OPENAPI_PATCH_FILE: is nested too deeply']);
  });

  it('a gateway describes what its operator has added, and of other callers’ operations nothing', async () => {
    const { token, entry } = enrol('reports');
    const { token: keys, entry: other } = enrol('keys', { operations: ['list-api-keys'] });
    const { ask } = await startWith([entry, other], {
      OPENAPI_PATCH_FILE: written(JSON.stringify(withPage)),
    });
    const mine = (await ask('/openapi.json', { headers: bearer(token) })).body.toString();
    expect(mine).toContain('"Which page."');
    expect((await ask('/docs', { headers: bearer(token) })).body.toString()).toContain('Which page.');
    const theirs = (await ask('/openapi.json', { headers: bearer(keys) })).json();
    expect(Object.keys(theirs['paths'] as object)).toEqual(['/users/api-keys/', '/me']);
  });
});
