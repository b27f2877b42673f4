import { hash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { consoleFields, consolePage } from '../../src/admin/console-page.ts';
import { consoleScript } from '../../src/admin/console-script.ts';

describe('the console page', () => {
  it('the console page is smaller than 13 KiB', () => {
    expect(Buffer.byteLength(consolePage)).toBeLessThan(13 * 1_024);
  });

  it('the console page allows no script and no style but its own', () => {
    const policy = consoleFields['content-security-policy'];
    for (const tag of ['script', 'style']) {
      const found = [...consolePage.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, 'g'))];
      expect(found).toHaveLength(1);
      expect(policy).toContain(`${tag}-src 'sha256-${hash('sha256', found[0]?.[1] ?? '', 'base64')}'`);
    }
    expect(policy).toMatch(/^default-src 'none';/);
    expect(policy).not.toMatch(/unsafe|\*/);
  });

  it('the console page loads nothing from elsewhere and has no handlers in its markup', () => {
    expect(consolePage).not.toMatch(/(?:src|href)="(?!data:,|status"|metrics")/);
    expect(consolePage).not.toMatch(/<[^>]+ on[a-z]+=/i);
    expect(consolePage).not.toMatch(/<[^>]+ style=/i);
  });

  it('the console page writes only text, into elements that its markup has', () => {
    expect(consoleScript).not.toMatch(
      /innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|DOMParser/,
    );
    const ids = new Set([...consolePage.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
    const used = [...consoleScript.matchAll(/(?:\$|say|list|table)\('([\w-]+)'/g)].map(([, id]) => id);
    expect(used.length).toBeGreaterThan(10);
    for (const id of used) expect(ids, id).toContain(id);
  });
});
