/** All problems of the gateway, at `/problems`. */
import { html } from 'hono/html';
import { problems } from '../errors.ts';
import { type Html, type RenderedDocument, renderPage } from './page.ts';
import { problemCodes } from './problem-schemas.ts';

export const problemList = problemCodes.map((code) => ({
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
