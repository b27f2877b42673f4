/** What the gateway says of itself at `/`: what it is, and where to read on. */
import { html } from 'hono/html';
import { version } from '../version.ts';
import { type RenderedDocument, renderPage } from './page.ts';

const title = 'Workspace Analytics Gateway';
const description =
  'Reads the Workspace Analytics API for your programs and pages, with a key that only the gateway has.';

/** The same for programs: addresses are relative to that of the gateway. */
export function startDocument(base: string) {
  return {
    ...{ name: title, version, description, base },
    ...{ docs: '/docs', openapi: '/openapi.json', problems: '/problems', ready: '/readyz' },
  };
}

/** @param base the path of the base address that a reader without a credential may use */
export function startPage(base: string): Promise<RenderedDocument> {
  return renderPage({
    title,
    body: html`<div class="frame"><header><h1>${title}</h1></header>
<main><section><p>${description}</p>
<p>Take a program that works with the API, and change two things: its base address becomes <code>${base}</code> on this host, and its key becomes the token that you were given.</p>
<table><tbody>
<tr><th><a href="docs">/docs</a></th><td>operations, examples in curl, JavaScript and Python, what may be asked of the cache</td></tr>
<tr><th><a href="openapi.json">/openapi.json</a></th><td>the same for programs (OpenAPI 3.1)</td></tr>
<tr><th><a href="problems">/problems</a></th><td>what each problem means and what to do</td></tr>
<tr><th><a href="readyz">/readyz</a></th><td>whether the gateway has a key and is not stopping</td></tr>
</tbody></table></section>
<p class="soft">Version ${version}</p></main></div>`,
  });
}
