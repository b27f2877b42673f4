/**
 * The console: one page that shows what `/events` tells. It has no framework and loads nothing from elsewhere; the
 * browser runs only its script and applies only its style, by their digests.
 */
import { consoleTexts } from '../browser/pages.ts';
import { documentFields, pageFields } from '../edge/reply-fields.ts';

const { script, style } = consoleTexts;

const charts = [
  ['traffic', 'Requests', 'a second'],
  ['upstream', 'Calls of the upstream', 'a second'],
  ['times', 'Time to answer', 'callers and upstream'],
  ['saved', 'Upstream calls saved', 'a second'],
].map(
  ([id, title, unit]) =>
    `<figure><figcaption><h3 id="t-${id}">${title}</h3> <span class="soft">${unit}</span></figcaption><div class="chart" id="${id}" role="img" aria-labelledby="t-${id} d-${id}"></div><p class="key" id="d-${id}"></p></figure>`,
);

const table = (id: string, heading: string, columns: readonly string[]): string =>
  `<table role="table" aria-labelledby="${heading}"><thead role="rowgroup"><tr role="row">${columns
    .map((column) => {
      const [name, kind] = column.split('#');
      return `<th role="columnheader" scope="col"${kind === undefined ? '' : ' class="number"'}>${name}</th>`;
    })
    .join('')}</tr></thead><tbody role="rowgroup" id="${id}"></tbody></table><p class="soft"></p>`;

export const consolePage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Analytics gateway</title>
<link rel="icon" id="icon" href="data:,">
<style>${style}</style>
<header>
<h1>Workspace Analytics Gateway</h1>
<p id="about" class="soft"></p>
<p id="back" hidden><a href="./">All workspaces</a></p>
<div id="banner"><p><strong id="state" role="status">Asking…</strong> <span id="since"></span></p>
<ul id="reasons"></ul></div>
</header>
<main>
<section class="wide" id="each" aria-labelledby="h-each" hidden><h2 id="h-each">Workspaces</h2>
${table('workspaces', 'h-each', ['Name', 'Key', 'Upstream', 'Gate', 'Requests#', 'Waiting#', 'Stored reads#', 'Memory#'])}</section>
<section class="wide" id="last" aria-labelledby="h-last"><h2 id="h-last">Last 15 minutes</h2><div class="charts">${charts.join('')}</div></section>
<section id="of-key" aria-labelledby="h-key"><h2 id="h-key">Key</h2><p class="says" id="key-says"></p><dl id="key"></dl></section>
<section id="of-up" aria-labelledby="h-up"><h2 id="h-up">Upstream</h2><p class="says" id="circuit-says"></p><p class="says" id="gate-says"></p><dl id="gate"></dl><div id="limits"></div></section>
<section aria-labelledby="h-cache"><h2 id="h-cache">Cache</h2><dl id="cache"></dl>
<progress id="full" value="0" max="1" aria-label="Memory used by the cache"></progress>
<form id="purge"><label for="which">Answers of</label><select id="which"></select><span id="ask-token" hidden><label for="token">Token</label><input id="token" type="password" autocomplete="off"></span><button id="go">Purge</button><output id="purged" for="which"></output></form></section>
<section class="wide" id="fleet" aria-labelledby="h-fleet" hidden><h2 id="h-fleet">Gateways</h2><p class="says" id="fleet-says"></p>
${table('gateways', 'h-fleet', ['Gateway', 'Host', 'Version', 'Up for', 'Requests#', 'Calls of the upstream#', 'Waiting#'])}<dl id="store"></dl></section>
<section class="wide" aria-labelledby="h-call"><h2 id="h-call">Callers <span class="soft">in the last minute</span></h2><p class="says" id="callers-says"></p>
<p id="find" hidden><label for="search">Find a caller</label> <input id="search" type="search" autocomplete="off"></p>
${table('callers', 'h-call', ['Name', 'Per second#', 'Refused#', 'Waiting#', 'Longest wait#', 'Since start#', 'Credential', 'Last used', 'Ends', 'May read'])}</section>
<section class="wide" aria-labelledby="h-prob"><h2 id="h-prob">Problems</h2>
${table('problems', 'h-prob', ['Problem', 'Count#', 'Callers', 'Last', 'Cause', 'What to do', 'Last request id'])}</section>
<section class="wide" aria-labelledby="h-req"><h2 id="h-req">Requests since the start</h2>
${table('requests', 'h-req', ['Operation', 'Status', 'Total#'])}</section>
</main>
<footer><p class="soft">For programs: <a href="status">status</a>, <a href="metrics">metrics</a>.</p></footer>
<script>${script}</script>
</html>
`;

export const consoleFields = {
  ...documentFields,
  ...pageFields(style, [script]),
} as const;
