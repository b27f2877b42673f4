/**
 * The API document for people, at `/docs`: made from the same document that programs get, with examples to copy that run as
 * they stand.
 */
import { html } from 'hono/html';
import { apiPageTexts } from '../browser/pages.ts';
import { usualBase } from '../edge/operation.ts';
import type { Operation } from '../operations.ts';
import {
  type CacheRequest,
  cacheDirectives,
  type Field,
  type Reference,
  requestFields,
  responseFields,
  validators,
} from './components.ts';
import {
  type ApiFacts,
  noWorkspace,
  type OpenApiDocument,
  type OpenApiParameter,
  templateOf,
  timeoutAdvice,
} from './openapi.ts';
import { type Html, problemTable, prose, type RenderedDocument, renderPage } from './pages.ts';

export interface ApiPageFacts extends ApiFacts {
  /** The same for programs. */
  readonly document: OpenApiDocument;
  /** The address that callers use (PUBLIC_BASE_URL), where it is known. */
  readonly publicBase: string | undefined;
  /** Scheme and authority, as the request names them. The page's script puts its own in their place. */
  readonly seenOrigin: string;
  /** Whether links in answers lead past the gateway. */
  readonly linksLeadPast: boolean;
}

const languages = ['curl', 'JavaScript', 'Python'] as const;

export function apiPage(facts: ApiPageFacts): Promise<RenderedDocument> {
  const { document, publicBase, seenOrigin } = facts;
  const { info } = document;
  return renderPage({
    title: `${info.title}: API`,
    script: apiPageTexts.script,
    body: html`<div class="frame wide"><header><h1>${info.title}</h1>
<p class="soft">Version ${info.version}. For programs: <a href="openapi.json">openapi.json</a></p></header>
${contents(facts.operations)}
<main${publicBase === undefined ? html` data-origin="${seenOrigin}"` : ''}>
${start(facts)}
${authentication(document, facts.admitsAnonymous)}
${operationList(facts)}
${replies(document)}
<section id="about"><h2>About</h2>${info.description.split('\n\n').map((text) => html`<p>${prose(text)}</p>`)}</section>
<section id="cache"><h2>Ask the cache</h2><p>Repeated reads are answered from memory. A request may ask for more, or for less:</p>${cacheTable([...cacheDirectives, validators])}</section>
<section id="request-fields"><h2>Request fields</h2><p>All of them may be left out.</p>${fieldTable(Object.values(requestFields).filter(({ name }) => !isOfCache(name)))}</section>
<section id="response-fields"><h2>Response fields</h2>${fieldTable(Object.values(responseFields))}</section>
<section id="problems"><h2>Problems</h2>${problemTable()}</section>
</main></div>`,
  });
}

/** What a reader with a minute needs: the base address, and one command that works. */
function start(facts: ApiPageFacts): Html {
  const { operations, bases, admitsAnonymous, linksLeadPast } = facts;
  const [base = usualBase] = bases ?? [];
  const origin = originOf(facts);
  const [first] = operations;
  const path = first?.path ?? '/';
  const [example] = examplesOf({ origin, base, path, needsToken: !admitsAnonymous });
  return html`<section id="start"><h2>Start</h2>
<p>The base address. Take a program that works with the API, and put it in place of the API's:</p>
<div class="command"><pre tabindex="0" aria-label="The base address"><code>${origin}${base}</code></pre></div>
${
  first === undefined || bases?.length === 0
    ? ''
    : html`<p>Try it:</p><div class="command"><pre tabindex="0" aria-label="A command to begin with"><code>${example?.text}</code></pre></div>`
}
<p>${prose(timeoutAdvice(facts))}</p>
${linksLeadPast ? html`<p class="warning"><strong>Do not follow links in answers as they stand.</strong> ${prose(linkAdvice)}</p>` : ''}</section>`;
}

const linkAdvice =
  "They name the API's own address, and a program that follows one (`next` of a list) sends it your token. Take path and query of the link, and send them to the base address above. The operator of the gateway can mend this by setting `PUBLIC_BASE_URL`.";

function originOf({ publicBase, seenOrigin }: ApiPageFacts): string {
  return publicBase ?? seenOrigin;
}

/** These stand in the table about the cache. */
function isOfCache(name: string): boolean {
  return name === 'Cache-Control' || validators.fields.includes(name);
}

function contents(operations: readonly Operation[]): Html {
  return html`<nav aria-label="On this page"><ul>
<li><a href="#start">Start</a></li><li><a href="#authentication">Authenticate</a></li>
<li><a href="#operations">Operations</a><ul>${operations.map(({ path }, at) => html`<li><a href="#operation-${at}">${path}</a></li>`)}</ul></li>
<li><a href="#replies">Replies</a></li><li><a href="#about">About</a></li><li><a href="#cache">Ask the cache</a></li><li><a href="#request-fields">Request fields</a></li>
<li><a href="#response-fields">Response fields</a></li><li><a href="#problems">Problems</a></li></ul></nav>`;
}

function authentication({ components }: OpenApiDocument, admitsAnonymous: boolean): Html {
  const { token, apiKey } = components.securitySchemes;
  return html`<section id="authentication"><h2>Authenticate</h2>
<p>Send one of these with each request:</p>
<table><tbody><tr><th scope="row"><code>Authorization: Bearer &lt;token&gt;</code></th><td>${token?.description}</td></tr>
<tr><th scope="row"><code>X-API-Key: &lt;token&gt;</code></th><td>${apiKey?.description}</td></tr></tbody></table>
${
  admitsAnonymous
    ? html`<p>Where you reach this gateway now, a request without a credential is answered too.</p>`
    : html`<p>The examples below read the token from the environment variable <code>${tokenVariable}</code>.</p>`
}
<form class="token" hidden><label>Token for the requests that you send from this page. It stays in this field.<input type="password" id="token" autocomplete="off"></label></form></section>`;
}

function operationList(facts: ApiPageFacts): Html {
  if (facts.operations.length === 0) {
    return html`<section id="operations"><h2>Operations</h2><p>No operation is granted to you. Ask the operator of the gateway for one.</p></section>`;
  }
  if (facts.bases?.length === 0) {
    return html`<section id="operations"><h2>Operations</h2><p>${noWorkspace}</p></section>`;
  }
  return html`<section id="operations"><h2>Operations</h2>
<fieldset class="languages"><legend class="soft">Examples in</legend>${languages.map(
    (language, at) =>
      html`<label><input type="radio" name="language" id="in-${language.toLowerCase()}"${at === 0 ? html` checked` : ''}>${language}</label>`,
  )}</fieldset>
${facts.operations.map((operation, at) => operationArticle(operation, at, facts))}</section>`;
}

function operationArticle({ name, path, purpose }: Operation, at: number, facts: ApiPageFacts): Html {
  const [base = usualBase] = facts.bases ?? [];
  const origin = originOf(facts);
  const examples = examplesOf({ origin, base, path, needsToken: !facts.admitsAnonymous });
  const known = facts.document.paths[templateOf(path)]?.get.parameters ?? [];
  const segments = [...path.matchAll(/:(\w+)/g)].map(([, segment = '']) => segment);
  return html`<article id="operation-${at}"><h3><span class="method">GET</span> <code>${base}${path}</code> <span class="name">${name}</span></h3>
<p>${purpose}</p>
${segments.length > 0 ? html`<p>In the examples <code>${segmentInExamples}</code> stands for ${segments.map((segment) => html`<code>:${segment}</code> `)}.</p>` : ''}
${parameterTable(known)}
${examples.map(({ language, text }) => html`<div class="example ${language.toLowerCase()}"><pre tabindex="0" aria-label="Example in ${language}"><code>${text}</code></pre></div>`)}
<form hidden data-base="${origin}" data-path="${base}${path}">${segments.map((segment) => html`<label>${segment}<input type="text" name="${segment}" required></label>`)}<label class="query">Query for the upstream<input type="text" name="?" placeholder="none" autocomplete="off" spellcheck="false"></label><button>Send</button><div class="came" role="status"></div></form></article>`;
}

/** Those that the operator has named. */
function parameterTable(parameters: readonly (OpenApiParameter | Reference)[]): Html {
  const named = parameters.filter((one): one is OpenApiParameter => 'in' in one);
  if (named.length === 0) return html``;
  return html`<table><tbody>${named.map(
    ({ name, in: where, description }) =>
      html`<tr><th scope="row"><code>${name}</code></th><td>${where === 'query' ? '' : `${where}. `}${prose(description ?? '')}</td></tr>`,
  )}</tbody></table>`;
}

function replies({ components }: OpenApiDocument): Html {
  const rows = Object.entries(components.responses).map(([name, { description }]) => {
    const status = name.replace(/\D/g, '') || 'other';
    return html`<tr><th scope="row">${status}</th><td>${withLinks(description)}</td></tr>`;
  });
  return html`<section id="replies"><h2>Replies</h2><table><thead><tr><th scope="col">Status</th><th scope="col">What it is</th></tr></thead><tbody>
<tr><th scope="row">200</th><td>The upstream's answer, as it came or from memory.</td></tr>
<tr><th scope="row">304</th><td>Your copy still holds.</td></tr>${rows}</tbody></table></section>`;
}

/** As `prose`; the code of a problem leads to its row. */
function withLinks(text: string): Html[] {
  return text
    .split('`')
    .map((part, at) => (at % 2 === 0 ? html`${part}` : html`<a href="#${part}"><code>${part}</code></a>`));
}

function cacheTable(requests: readonly CacheRequest[]): Html {
  return html`<table><tbody>${requests.map(
    ({ fields, meaning }) =>
      html`<tr><th scope="row">${fields.map((field, at) => html`${at === 0 ? '' : ', '}<code>${field}</code>`)}</th><td>${prose(meaning)}</td></tr>`,
  )}</tbody></table>`;
}

function fieldTable(fields: readonly Field[]): Html {
  return html`<table><tbody>${fields.map(
    ({ name, meaning, example }) =>
      html`<tr><th scope="row"><code>${name}</code></th><td>${prose(meaning)} For example <code>${example}</code></td></tr>`,
  )}</tbody></table>`;
}

export interface ExampleFacts {
  /** Scheme and authority of the gateway, as the reader reaches it. */
  readonly origin: string;
  /** The path of the base address. */
  readonly base: string;
  /** The path below it; a segment to fill in is written `:name`. */
  readonly path: string;
  /** Whether a request needs a credential. */
  readonly needsToken: boolean;
}

export interface Example {
  readonly language: 'curl' | 'JavaScript' | 'Python';
  readonly text: string;
}

/** The environment variable from which the examples read the token, so that it does not stand in a program. */
const tokenVariable = 'ANALYTICS_TOKEN';

/** In place of each segment that the reader fills in. */
const segmentInExamples = '1';

function examplesOf({ origin, base, path, needsToken }: ExampleFacts): readonly Example[] {
  const url = `${origin}${base}${path.replace(/:\w+/g, segmentInExamples)}`;
  return [
    { language: 'curl', text: curl(url, needsToken) },
    { language: 'JavaScript', text: javascript(url, needsToken) },
    { language: 'Python', text: python(url, needsToken) },
  ];
}

function curl(url: string, needsToken: boolean): string {
  // Quoted for the query that a reader may add.
  return needsToken
    ? `curl -i -H "Authorization: Bearer $${tokenVariable}" \\\n  '${url}'`
    : `curl -i '${url}'`;
}

/** For Node 18 and later, as a module. */
function javascript(url: string, needsToken: boolean): string {
  const call = needsToken
    ? `fetch('${url}', {
  headers: { Authorization: \`Bearer \${process.env.${tokenVariable}}\` },
})`
    : `fetch('${url}')`;
  return `const response = await ${call};
if (!response.ok) throw new Error(await response.text());
console.log(await response.json());`;
}

/** For Python 3, with its own library alone. */
function python(url: string, needsToken: boolean): string {
  const imports = needsToken ? 'import json\nimport os' : 'import json';
  const request = needsToken
    ? `Request("${url}")
request.add_header("Authorization", "Bearer " + os.environ["${tokenVariable}"])`
    : `Request("${url}")`;
  return `${imports}
from urllib.error import HTTPError
from urllib.request import Request, urlopen

request = ${request}
try:
    with urlopen(request, timeout=30) as response:
        print(json.load(response))
except HTTPError as problem:
    raise SystemExit(problem.read().decode())`;
}
