import { describe, expect, it } from 'vitest';
import { prefersPage } from '../../src/documents/negotiation-policy.ts';

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
  ])('Accept: %s is answered with a page: %s', (accept, page) => {
    expect(prefersPage(accept)).toBe(page);
  });
});
