import { describe, expect, it } from 'vitest';
import { namesJson, prefersPage } from '../../src/documents/pages.ts';

describe('a document as a page or for programs', () => {
  it.each<[accept: string | undefined, page: boolean]>([
    [undefined, false],
    ['', false],
    ['*/*', false],
    ['application/json', false],
    ['text/html', true],
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', true],
    ['application/json, text/html;q=0.5', false],
    ['application/json;q=0.5, text/html', true],
    ['text/html;q=0', false],
    ['text/htmlx', false],
    ['TEXT/HTML', true],
    ['Text/Html;Q=0.5, Application/JSON', false],
    ['application/json;q=0, */*', true],
    ['text/html, */*;q=0.5', true],
    ['text/html;q=0.5, */*', false],
  ])('Accept: %s is answered with a page: %s', (accept, page) => {
    expect(prefersPage(accept)).toBe(page);
  });
});

describe('a problem as a text or for programs', () => {
  it.each<[accept: string | undefined, json: boolean]>([
    [undefined, false],
    ['*/*', false],
    ['application/json', true],
    ['APPLICATION/JSON', true],
    ['application/problem+json', true],
    ['application/json;q=0, */*', false],
    ['application/json, */*', true],
    ['application/problem+json;q=0.5, text/plain', false],
  ])('Accept: %s is answered with the problem in JSON: %s', (accept, json) => {
    expect(namesJson(accept)).toBe(json);
  });
});
