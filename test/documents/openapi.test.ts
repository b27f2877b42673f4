import { createConfig, lintFromString, type RuleConfig } from '@redocly/openapi-core';
import { describe, expect, it } from 'vitest';
import { describeApi, type OpenApiDocument, timeoutAdvice } from '../../src/documents/openapi.ts';
import { problems } from '../../src/errors.ts';
import { configuredOperations, type Operation, specifiedOperations } from '../../src/operations.ts';

const further = configuredOperations(['/analytics/posts/', '/analytics/reports/:id/pages/:page_number']);
const document = describeApi({ operations: [...specifiedOperations, ...further], admitsAnonymous: false });

/** What Redocly's linter says of a document, with its recommended rules, warnings as errors. */
async function lint(of: OpenApiDocument, rules: Record<string, RuleConfig> = {}): Promise<string[]> {
  const config = await createConfig({
    extends: ['recommended-strict'],
    // The upstream's specification ends every path with a slash.
    rules: { 'no-path-trailing-slash': 'off', ...rules },
  });
  const found = await lintFromString({ source: JSON.stringify(of), config });
  return found.map(({ ruleId, message, location }) => `${ruleId}: ${message} ${location[0]?.pointer}`);
}

/** Every value of a member with this name, however deep. */
function valuesOf(value: unknown, name: string): unknown[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, member]) => [
    ...(key === name ? [member] : []),
    ...valuesOf(member, name),
  ]);
}

function describeOne(operation: Operation) {
  const { paths } = describeApi({ operations: [operation], admitsAnonymous: false });
  const [[path, { get, parameters }] = ['', { get: undefined, parameters: undefined }], ...more] =
    Object.entries(paths);
  expect(more.map(([name]) => name)).toEqual(['/me']);
  return { path, get, parameters };
}

describe('the API document', () => {
  it('the API document passes the linter of Redocly with its recommended rules', async () => {
    expect(await lint(document)).toEqual([]);
    expect(await lint(describeApi({ operations: specifiedOperations, admitsAnonymous: true }))).toEqual([]);
  });

  it('the API document of a caller that may do nothing passes the linter as well', async () => {
    const empty = describeApi({ operations: [], admitsAnonymous: false });
    expect(Object.keys(empty.paths)).toEqual(['/me']);
    expect(await lint(empty, { 'no-unused-components': 'off' })).toEqual([]);
  });

  it('the linter finds what is wrong with a document', async () => {
    const [path = ''] = Object.keys(document.paths);
    const paths = { [`${path}{missing}/`]: document.paths[path] } as OpenApiDocument['paths'];
    expect((await lint({ ...document, paths })).join()).toContain('path-parameters-defined');
  });

  it('the API document has the operations of the table by their names, and no others', () => {
    const operations = Object.entries(document.paths).map(([path, { get }]) => [path, get.operationId]);
    expect(operations).toEqual([
      ['/analytics/accounts/', 'list-accounts'],
      ['/users/api-keys/', 'list-api-keys'],
      ['/analytics/posts/', '/analytics/posts/'],
      ['/analytics/reports/{id}/pages/{page_number}', '/analytics/reports/:id/pages/:page_number'],
      ['/me', 'me'],
    ]);
  });

  it("the API document describes no parameter, member or type of the upstream's answers", () => {
    const { get } = describeOne(specifiedOperations[0]);
    const content = get?.responses['200'] as { content: Record<string, { schema: object }> };
    expect(Object.keys(content.content)).toEqual(['application/json']);
    expect(Object.keys(content.content['application/json']?.schema ?? {})).toEqual(['description']);
    // A generated client would take one that stands for all of them for a single one, and read page 1 for ever.
    expect(Object.values(document.components.parameters).filter((one) => one.in === 'query')).toEqual([]);
    // Nothing of an upstream answer is a schema of its own.
    expect(Object.keys(document.components.schemas)).toEqual(['Me', 'Problem', ...Object.keys(problems)]);
  });

  it('the API document says nothing of the media type of a read that is not specified', () => {
    for (const operation of further) {
      const content = describeOne(operation).get?.responses['200'] as { content: object };
      expect(Object.keys(content.content)).toEqual(['*/*']);
    }
  });

  it('the API document has each segment of a path that callers fill in, with what it may hold', () => {
    const { parameters } = describeOne(configuredOperations(['/reports/:id/:page_number'])[0] as Operation);
    const own = parameters?.filter((one) => 'in' in one) ?? [];
    expect(own.map(({ name }) => name)).toEqual(['id', 'page_number']);
    for (const { schema, required } of own) {
      const pattern = new RegExp(schema['pattern'] as string);
      expect([required, 'a.1', '..', '', 'a/b', 'a%20b'].map((text) => pattern.test(String(text)))).toEqual([
        ...[true, true, false, false, false, false],
      ]);
    }
  });

  it('the API document has every problem at its status, with its code and title', () => {
    for (const [code, { status, title }] of Object.entries(problems)) {
      expect(document.components.schemas[code], code).toMatchObject({
        description: expect.stringContaining(`${title}. `) as unknown,
        properties: { code: { const: code }, status: { const: status } },
      });
      const response = document.components.responses[`Problem${status}`];
      // A GET is never refused for its method.
      if (code === 'method-not-allowed') expect(response).toBeUndefined();
      else expect(JSON.stringify(response), code).toContain(`#/components/schemas/${code}"`);
    }
  });

  it('a schema has its name alone, which generators give to a type, and every union says how its members differ', () => {
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      expect(schema, name).not.toHaveProperty('title');
    }
    const unions = JSON.stringify(document).match(/"oneOf":\[[^\]]*\],"discriminator"|"oneOf":/g) ?? [];
    expect(unions.length).toBeGreaterThan(1);
    expect(unions.filter((text) => !text.endsWith('"discriminator"'))).toEqual([]);
  });

  it('the API document says which statuses may be the upstream’s own, and types each as a problem', () => {
    for (const [name, { content = {}, description }] of Object.entries(document.components.responses)) {
      const isOwn = name !== 'Problem401' && name !== 'Problem429';
      expect(/upstream's (?:own|answer)/.test(description), name).toBe(isOwn);
      expect(Object.keys(content), name).toEqual(['application/problem+json']);
    }
  });

  it('the API document says how long a request may take, and what clients that give up sooner have to set', () => {
    const { info } = describeApi({ operations: [], admitsAnonymous: false, requestTimeoutMs: 40_500 });
    expect(info.description).toContain('within 41 s');
    expect(info.description).toContain('`timeout: 46_000` in ky');
  });

  it.each([
    [40_500, 'ky (10 s) and httpx (5 s) give up sooner'],
    [10_000, 'httpx (5 s) gives up sooner'],
    [6_000, 'httpx (5 s) gives up sooner'],
  ])('with REQUEST_TIMEOUT of %i ms the API document says that %s', (requestTimeoutMs, sooner) => {
    expect(timeoutAdvice({ requestTimeoutMs })).toContain(`: ${sooner} by`);
  });

  it('where a client of every kind waits long enough, the API document names none that gives up sooner', () => {
    expect(timeoutAdvice({ requestTimeoutMs: 5_000 })).not.toMatch(/sooner/);
  });

  it('the API document has both ways to authenticate, and says where a caller needs neither', () => {
    expect(document.security).toEqual([{ token: [] }, { apiKey: [] }]);
    const open = describeApi({ operations: specifiedOperations, admitsAnonymous: true });
    expect(open.security).toEqual([{ token: [] }, { apiKey: [] }, {}]);
  });

  it('the API document refers to nothing outside itself', () => {
    for (const reference of valuesOf(document, '$ref')) expect(reference).toMatch(/^#\/components\//);
    expect(JSON.stringify(document)).not.toMatch(/https?:\/\//);
  });
});
