/**
 * The frame of every page: one style, at most one script, both in the page itself and admitted by their digests. A page
 * loads nothing from elsewhere, and where no script runs it can be read all the same.
 */
import { html, raw } from 'hono/html';
import { style } from '../browser/api-page.ts';
import { pageFields } from '../edge/page-fields.ts';

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
