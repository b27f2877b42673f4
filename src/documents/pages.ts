/**
 * The pages: their frame, the start page, the list of problems, and which form of a document a request asks for. A page has
 * one style and at most one script, both in the page itself and admitted by their digests. It loads nothing from elsewhere,
 * and where no script runs it can be read all the same.
 */
import { html, raw } from 'hono/html';
import { parseAccept } from 'hono/utils/accept';
import { apiPageTexts } from '../browser/pages.ts';
import { pageFields } from '../edge/reply-fields.ts';
import { type ProblemCode, problems } from '../errors.ts';
import { version } from '../version.ts';

const { style } = apiPageTexts;

/** A document with its own fields; where it has no `content-type`, it is plain text. */
export interface RenderedDocument {
  readonly text: string;
  readonly fields?: Readonly<Record<string, string>>;
}

/** Text that has been escaped. */
export type Html = ReturnType<typeof html>;

export interface PageParts {
  readonly title: string;
  readonly body: Html;
  readonly script?: string;
}

export async function renderPage({ title, body, script }: PageParts): Promise<RenderedDocument> {
  const text = await html`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>${raw(style)}</style>
<body>${body}${script === undefined ? '' : html`<script>${raw(script)}</script>`}</body>
</html>
`;
  return { text: String(text), fields: pageFields(style, script === undefined ? [] : [script]) };
}

/** A text of this program, in which backticks mark code. */
export function prose(text: string): Html[] {
  return text.split('`').map((part, at) => (at % 2 === 0 ? html`${part}` : html`<code>${part}</code>`));
}

const gateway = 'Workspace Analytics Gateway';
const description =
  'Reads the Workspace Analytics API for your programs and pages, with a key that only the gateway has.';

/** The same for programs: addresses are relative to that of the gateway. */
export function startDocument(base: string) {
  return {
    name: gateway,
    version,
    description,
    base,
    docs: '/docs',
    openapi: '/openapi.json',
    problems: '/problems',
    ready: '/readyz',
  };
}

/** @param base the path of the base address that a reader without a credential may use */
export function startPage(base: string): Promise<RenderedDocument> {
  return renderPage({
    title: gateway,
    body: html`<div class="frame"><header><h1>${gateway}</h1></header>
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

/** All problems of the gateway, at `/problems`. */
export const problemList = (Object.keys(problems) as ProblemCode[]).map((code) => ({
  type: `/problems/${code}`,
  code,
  ...problems[code],
}));

/** A row for each problem; its code is the row's anchor. */
export function problemTable(): Html {
  return html`<table class="problems"><thead><tr><th scope="col">Code</th><th scope="col">Status</th><th scope="col">What it means, and what to do</th></tr></thead><tbody>${problemList.map(
    ({ code, status, title, help }) =>
      html`<tr id="${code}"><th scope="row"><code>${code}</code></th><td>${status}</td><td><strong>${title}.</strong> ${help}</td></tr>`,
  )}</tbody></table>`;
}

export function problemListPage(): Promise<RenderedDocument> {
  return renderPage({
    title: 'Problems of the gateway',
    body: html`<div class="frame"><header><h1>Problems</h1></header><main><section>
<p>What fails in the gateway is <code>application/problem+json</code> (RFC 9457) with one of these codes. Quote its <code>requestId</code> when you ask for help. How to call the gateway: <a href="docs">/docs</a>.</p>
${problemTable()}</section></main></div>`,
  });
}

/**
 * Whether to answer with a page: browsers name `text/html` first. Programs get JSON, and so does `*` alone, which curl
 * and most libraries send.
 *
 * @param accept the value of `Accept` (RFC 9110 section 12.5.1); `undefined` where it was not sent
 */
export function prefersPage(accept: string | undefined): boolean {
  return (
    weightOf(accept, ['text/html', 'text/*', '*/*']) >
    weightOf(accept, ['application/json', 'application/*', '*/*'])
  );
}

/**
 * Whether to answer with JSON where the usual form is a text for people: programs name a type of JSON. `*` alone, which
 * curl sends, names nothing.
 *
 * @param accept as for `prefersPage`
 */
export function namesJson(accept: string | undefined): boolean {
  const heaviest = (...types: readonly string[]): number =>
    Math.max(...types.map((type) => weightOf(accept, [type])));
  return heaviest('application/json', 'application/problem+json') > heaviest('text/html', 'text/plain');
}

/** Media types are compared without case (RFC 9110 section 8.3.1). The weight of the first of these ranges that is there: the most specific one counts, so it comes first. */
function weightOf(accept: string | undefined, ranges: readonly string[]): number {
  const sent = parseAccept(accept?.toLowerCase() ?? '');
  for (const range of ranges) {
    const found = sent.find(({ type }) => type === range);
    if (found !== undefined) return found.q;
  }
  return 0;
}
