/**
 * The console: one page that shows `/status`. It has no framework and loads nothing from elsewhere; the browser runs only
 * this script and applies only this style, by their digests.
 */
import { hash } from 'node:crypto';
import { consoleScript } from './console-script.ts';
import { consoleStyle } from './console-style.ts';

export const consolePage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Analytics gateway</title>
<link rel="icon" href="data:,">
<style>${consoleStyle}</style>
<header>
<h1>Workspace Analytics Gateway</h1>
<p id="about"></p>
<p id="state" role="status">Asking…</p>
</header>
<main>
<section aria-labelledby="h-key"><h2 id="h-key">Key</h2><p class="says" id="key-says"></p><dl id="key"></dl></section>
<section aria-labelledby="h-up"><h2 id="h-up">Upstream</h2><p class="says" id="circuit-says"></p><p class="says" id="gate-says"></p><dl id="gate"></dl></section>
<section aria-labelledby="h-cache"><h2 id="h-cache">Cache</h2><dl id="cache"></dl>
<progress id="full" value="0" max="1" aria-label="Memory used by the cache"></progress>
<form id="purge"><label for="which">Answers of</label><select id="which"></select><button id="go">Purge</button><output id="purged" for="which"></output></form></section>
<section id="fleet" aria-labelledby="h-fleet" hidden><h2 id="h-fleet">Gateways</h2><p class="says" id="fleet-says"></p><dl id="store"></dl></section>
<section class="wide" aria-labelledby="h-req"><h2 id="h-req">Requests</h2><p class="says" id="rate"></p>
<svg viewBox="0 0 120 30" preserveAspectRatio="none" aria-hidden="true"><polyline id="line" points=""/></svg>
<div class="scroll" role="region" aria-labelledby="h-req" tabindex="0"><table><thead><tr><th scope="col">Operation</th><th scope="col">Status</th><th scope="col" class="number">A second</th><th scope="col" class="number">Total</th></tr></thead><tbody id="requests"></tbody></table></div></section>
<section class="wide" aria-labelledby="h-call"><h2 id="h-call">Callers</h2><p class="says busy" id="callers-says"></p>
<div class="scroll" role="region" aria-labelledby="h-call" tabindex="0"><table><thead><tr><th scope="col">Name</th><th scope="col" class="number">Requests</th><th scope="col" class="number">Waiting</th><th scope="col" class="number">Longest</th><th scope="col">Credential</th><th scope="col">May read</th></tr></thead><tbody id="callers"></tbody></table></div></section>
</main>
<footer><p>For programs: <a href="status">status</a>, <a href="metrics">metrics</a>.</p></footer>
<script>${consoleScript}</script>
</html>
`;

const digest = (text: string): string => `'sha256-${hash('sha256', text, 'base64')}'`;

export const consoleFields = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': [
    "default-src 'none'",
    `script-src ${digest(consoleScript)}`,
    `style-src ${digest(consoleStyle)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;
