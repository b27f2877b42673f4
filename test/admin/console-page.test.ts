import { hash } from 'node:crypto';
import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { consoleFields, consolePage } from '../../src/admin/console-page.ts';
import { consoleTexts } from '../../src/browser/pages.ts';

const { script } = consoleTexts;
const program = globSync('src/browser/console/*.ts')
  .map((path) => readFileSync(path, 'utf8'))
  .join('\n');
const ownPage = consolePage.replace(script, '');

describe('the console page', () => {
  it('the console page is smaller than 80 KiB, charts included', () => {
    expect(Buffer.byteLength(consolePage)).toBeLessThan(80 * 1_024);
  });

  it('the console page allows no script and no style but its own', () => {
    const policy = consoleFields['content-security-policy'];
    for (const [tag, count] of [
      ['script', 1],
      ['style', 1],
    ] as const) {
      const found = [...consolePage.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, 'g'))];
      expect(found).toHaveLength(count);
      const [, digests = ''] = new RegExp(`${tag}-src ([^;]+)`).exec(policy) ?? [];
      const own = found.map(([, text = '']) => `'sha256-${hash('sha256', text, 'base64')}'`);
      expect(digests.split(' ').toSorted()).toEqual(own.toSorted());
    }
    expect(policy).toMatch(/^default-src 'none';/);
    expect(policy).not.toMatch(/unsafe|\*/);
  });

  it('the console page loads nothing from elsewhere and has no handlers in its markup', () => {
    expect(ownPage).not.toMatch(/(?:src|href)="(?!data:,|\.\/"|status"|metrics")/);
    expect(ownPage).not.toMatch(/<[^>]+ on[a-z]+=/i);
    expect(ownPage).not.toMatch(/<[^>]+ style=/i);
  });

  it('the console page writes only text, into elements that its markup has', () => {
    expect(program).not.toMatch(/innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|DOMParser/);
    const ids = new Set([...consolePage.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
    const used = [...program.matchAll(/(?:\$|say|list|table|field)\('([\w-]+)'/g)]
      .map(([, id]) => id)
      .filter((id) => id !== 'd-');
    expect(used.length).toBeGreaterThan(10);
    for (const id of used) expect(ids, id).toContain(id);
  });
});
