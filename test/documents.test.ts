import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writtenDocuments } from '../docs/write.ts';
import { readCallersFile } from '../src/callers/callers-file.ts';
import { readConfig } from '../src/config/config.ts';
import { settings } from '../src/config/settings.ts';
import { problems } from '../src/errors.ts';
import { version } from '../src/version.ts';
import { rulesFor } from './support/callers-fixture.ts';
import { anchorsOf, blocksOf, documents, linksOf, readDocument, root } from './support/documents.ts';

describe('the documents', () => {
  it.each([...writtenDocuments()])('the document %s has what "npm run docs:write" writes', (path, text) => {
    expect(readDocument(path)).toBe(text);
  });

  it.each(documents)('the document %s links to files and headings that exist', (path) => {
    const broken = linksOf(readDocument(path)).filter((link) => {
      if (/^https?:/.test(link)) return false;
      const [target = '', anchor] = link.split('#');
      const file = target === '' ? path : normalize(join(dirname(path), target)).replaceAll('\\', '/');
      if (!existsSync(join(root, file))) return true;
      return anchor !== undefined && !anchorsOf(readDocument(file)).has(anchor);
    });
    expect(broken).toEqual([]);
  });

  it('the documents are short enough to be read', () => {
    const readme = readDocument('README.md');
    expect(readme.split('\n').length).toBeLessThanOrEqual(200);
    expect(Buffer.byteLength(readme)).toBeLessThanOrEqual(14 * 1024);
    for (const path of documents.filter((one) => one.startsWith('docs/'))) {
      expect(readDocument(path).split('\n').length, path).toBeLessThanOrEqual(250);
    }
    const architecture = readDocument('ARCHITECTURE.md').trimEnd().split('\n');
    expect(architecture.length).toBeLessThanOrEqual(120);
    expect(architecture.filter((line) => line.length > 110)).toEqual([]);
  });

  it('the documents are all linked from the index or from the list of decisions', () => {
    const linked = ['docs', 'docs/decisions'].flatMap((folder) =>
      linksOf(readDocument(`${folder}/README.md`)).map((link) =>
        normalize(join(folder, link.split('#')[0] ?? '')).replaceAll('\\', '/'),
      ),
    );
    const pages = documents.filter((path) => path.startsWith('docs/') && path !== 'docs/README.md');
    expect(pages.filter((path) => !linked.includes(path))).toEqual([]);
  });

  it('the documents are all in the sidebar of the site', () => {
    const site = readFileSync(join(root, 'docs/.vitepress/config.ts'), 'utf8');
    const pages = documents
      .map((path) => /^docs\/([\w-]+)\.md$/.exec(path)?.[1] ?? '')
      .filter((name) => name !== '');
    expect(pages.filter((name) => name !== 'README' && !site.includes(`'/docs/${name}'`))).toEqual([]);
  });

  it('the documents name only files that exist', () => {
    // The page on security names tests as they stand below test/.
    const exists = (file: string): boolean =>
      ['', 'test'].some((folder) => existsSync(join(root, folder, file)));
    for (const path of documents) {
      const named = readDocument(path).matchAll(
        /`((?:bench|bin|docs|src|test)\/[\w./-]+\.(?:js|ts|md|json))`/g,
      );
      const missing = [...named].map(([, file = '']) => file).filter((file) => !exists(file));
      expect(missing, path).toEqual([]);
    }
  });

  it('the documents name only settings that exist', () => {
    const prefixes = /^(?:UPSTREAM|CALLERS?|CORS|CACHE|RETRY|GATE|FORWARD|SHUTDOWN)_[A-Z_]+$/;
    for (const path of documents) {
      const named = [...readDocument(path).matchAll(/`([A-Z][A-Z_]+)(?:=[^`]*)?`/g)].map(
        ([, name = '']) => name,
      );
      const unknown = named.filter((name) => prefixes.test(name) && !(name in settings));
      expect(unknown, path).toEqual([]);
    }
  });

  it('the documents name every problem in README', () => {
    const table = readDocument('README.md').split('## When it fails')[1]?.split('\n## ')[0] ?? '';
    const named = [...table.matchAll(/`([a-z]+(?:-[a-z]+)+|overloaded)`/g)].map(([, code]) => code);
    expect(named.toSorted()).toEqual(Object.keys(problems).toSorted());
  });

  it('the documents show callers files that a gateway accepts', () => {
    const rules = rulesFor(true);
    for (const path of documents) {
      const files = blocksOf(readDocument(path))
        .filter(({ language, text }) => language === 'json' && /"(?:callers|jwt)"/.test(text))
        .map(({ text }) => text.replace('<64 hex digits>', 'a1'.repeat(32)));
      for (const text of files) {
        const whole = text.startsWith('{ "callers"') ? text : `{ "callers": [${text}] }`;
        expect(readCallersFile(whole, rules).problems, `${path}: ${text}`).toEqual([]);
      }
    }
  });

  it('.env.example names only settings that exist, with values that are read, and requires what is required', () => {
    const lines = readDocument('.env.example').split('\n');
    const rows = lines.flatMap((line) => {
      const [, sign, name, value] = /^(# )?([A-Z][A-Z_]+)=(.*)$/.exec(line) ?? [];
      return name === undefined ? [] : [{ isComment: sign !== undefined, name, value }];
    });
    expect(rows.length).toBeGreaterThan(6);
    expect(rows.filter(({ name }) => !(name in settings))).toEqual([]);
    const required = Object.entries(settings).filter((row) => row[1].required);
    expect(rows.filter(({ isComment }) => !isComment).map(({ name }) => name)).toEqual(
      required.map(([name]) => name),
    );
    expect(() => readConfig(Object.fromEntries(rows.map(({ name, value }) => [name, value])))).not.toThrow();
  });

  it('the documents have the version of the package', () => {
    expect(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))).toMatchObject({ version });
    expect(readDocument('CHANGELOG.md')).toContain(`## ${version}`);
  });
});
