/**
 * The site of the documents: the same pages as they stand in the repository, `README.md` of the root first. Nothing of
 * it is fetched from elsewhere; the search is an index of its own.
 */
import { cpSync, globSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitepress';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** A copy of all pages: those of the root stand above `docs/`, where VitePress cannot find its own libraries. */
const pages = fileURLToPath(new URL('pages', import.meta.url));
const linkedFiles = [
  '.env.example',
  '.github/dependabot.yml',
  '.github/workflows/release.yml',
  '.github/workflows/test.yml',
  'Dockerfile',
  'LICENSE',
  'fly.toml',
  ...globSync('deploy/{compose.yaml,grafana/*,helm/*.{yaml,json},kubernetes/*/*,prometheus/*,systemd/*}', {
    cwd: root,
  }),
  ...globSync('docs/examples/*/*', { cwd: root }),
];

rmSync(pages, { recursive: true, force: true });
const documents = globSync(
  ['*.md', 'deploy/README.md', 'docs/*.{md,png,svg}', 'docs/decisions/*.md', 'bench/results.svg'],
  {
    cwd: root,
  },
);
for (const file of documents) cpSync(join(root, file), join(pages, file));

const page = (text: string, link: string) => ({ text, link });
/** In the page itself, so that it is found below any path where the site is published. */
const icon = `data:image/svg+xml,${encodeURIComponent(readFileSync(new URL('icon.svg', import.meta.url), 'utf8').trim())}`;

export default defineConfig({
  title: 'Workspace Analytics Gateway',
  description: 'Holds the API key of the Workspace Analytics API, so that no caller has to.',
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: icon }]],
  srcDir: './.vitepress/pages',
  rewrites: { 'README.md': 'index.md', ':folder(.*)/README.md': ':folder/index.md' },
  outDir: './.vitepress/dist',
  cleanUrls: false,
  ignoreDeadLinks: 'localhostLinks',
  markdown: {
    config(markdown) {
      // VitePress makes an address of each link that ends in .html: wrong for README.md, which is rewritten, and for files.
      markdown.core.ruler.push('links', ({ tokens, env }) => {
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          const href = token.attrGet('href') ?? '#';
          if (/^(?:#|\w+:)/.test(href)) continue;
          token.attrSet('href', href.replace('README.md', 'index.md'));
          if (/\.md(?:#|$)/.test(href)) continue;
          token.attrSet('target', '_self');
          const file = join(dirname(env.relativePath), href);
          if (!linkedFiles.some((one) => file.startsWith(one))) throw new Error(`the site lacks ${file}`);
        }
      });
      const fence = markdown.renderer.rules.fence;
      markdown.renderer.rules.fence = (tokens, index, options, env, self) => {
        const token = tokens[index];
        if (token?.info.trim() === 'mermaid') {
          return `<MermaidDiagram source="${encodeURIComponent(token.content)}" />`;
        }
        return fence?.(tokens, index, options, env, self) ?? '';
      };
    },
  },
  vite: { logLevel: 'warn' },
  transformHtml(html) {
    const outside = /<(?:script|link|img|iframe|source)\b[^>]*\s(?:src|href)="(?:https?:)?\/\/[^"]*"/.exec(
      html,
    )?.[0];
    if (outside !== undefined) throw new Error(`the site would fetch from elsewhere: ${outside}`);
    if (!html.includes('<link rel="icon"')) throw new Error('a page of the site has no icon');
  },
  buildEnd({ outDir }) {
    for (const file of linkedFiles) cpSync(join(root, file), join(outDir, file), { recursive: true });
    process.stdout.write(
      `\nThe site is in ${outDir}\nOpen it: npm run --prefix docs preview, then http://localhost:4173/ in a browser\n\n`,
    );
  },
  themeConfig: {
    siteTitle: 'Analytics Gateway',
    search: { provider: 'local' },
    outline: [2, 3],
    sidebar: [
      {
        text: 'Call it',
        items: [
          page('Start', '/'),
          page('Callers', '/docs/callers'),
          page('Clients', '/docs/clients'),
          page('Caching', '/docs/caching'),
        ],
      },
      {
        text: 'Run it',
        items: [
          page('Callers file', '/docs/callers-file'),
          page('Deploying', '/docs/deploying'),
          page('Files to deploy with', '/deploy/'),
          page('Several workspaces', '/docs/workspaces'),
          page('Several gateways', '/docs/shared-store'),
          page('Operating', '/docs/operating'),
          page('Upgrading and backup', '/docs/upgrading'),
          page('Alerts', '/docs/alerts'),
          page('Key', '/docs/key'),
          page('Rate limits', '/docs/rate-limits'),
          page('Settings', '/docs/settings'),
          page('Metrics and status', '/docs/metrics'),
        ],
      },
      {
        text: 'Judge it',
        items: [
          page('Security', '/docs/security'),
          page('Performance', '/docs/performance'),
          page('Storm', '/docs/storm'),
          page('Decisions', '/docs/decisions/'),
          page('Changes', '/CHANGELOG'),
        ],
      },
      {
        text: 'Change it',
        items: [page('Architecture', '/ARCHITECTURE'), page('Contributing', '/CONTRIBUTING')],
      },
    ],
  },
});
