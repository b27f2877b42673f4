/**
 * The program of the API page: puts the address that the browser uses into the examples (a proxy before the gateway may
 * have changed it), copies an example, and sends requests. It stores nothing; the token stays in its field.
 */

const maxShown = 200_000;

// Where the operator has said which address callers use, the examples have that.
const origin = document.querySelector('main')?.dataset['origin'];
for (const code of document.querySelectorAll('.example code, .command code')) {
  if (origin !== undefined) code.textContent = code.textContent.replaceAll(origin, location.origin);
  code.parentElement?.after(copyButton(code));
}
for (const form of document.querySelectorAll('form')) {
  form.hidden = false;
  const { path, base } = form.dataset;
  if (path !== undefined && base !== undefined)
    followForm(form, base === origin ? location.origin : base, path);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (form.dataset['path'] !== undefined) void send(form, form.dataset['path']);
  });
}

/** Puts what is typed into the examples of the same operation. */
function followForm(form: HTMLFormElement, base: string, path: string): void {
  const codes = [...(form.parentElement?.querySelectorAll('.example code') ?? [])];
  const texts = codes.map((code) => code.textContent);
  const shown = base + path.replaceAll(/:\w+/g, '1');
  form.addEventListener('input', () => {
    const target = base + targetIn(form, path, '1').replaceAll(/["'\\\s`$<>]/g, percentEncoded);
    for (const [at, code] of codes.entries())
      code.textContent = texts[at]?.replaceAll(shown, () => target) ?? '';
  });
}

/** For characters that would end a text of a program; `encodeURIComponent` leaves some. */
function percentEncoded(character: string): string {
  return `%${character.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase()}`;
}

/** The path and query that a form asks for. @param empty stands for a segment that is not filled in */
function targetIn(form: HTMLFormElement, pattern: string, empty: string): string {
  const query = textIn(form, '?').replace(/^\?/, '');
  const path = pattern.replaceAll(/:(\w+)/g, (_all, name: string) => textIn(form, name) || empty);
  return query === '' ? path : `${path}?${query}`;
}

function copyButton(code: Element): HTMLButtonElement {
  const button = document.createElement('button');
  button.className = 'copy';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection()?.selectAllChildren(code);
      button.textContent = 'Selected';
    }
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2_000);
  });
  return button;
}

/** The text in a field of a form, by the field's name. */
function textIn(form: HTMLFormElement, name: string): string {
  const field = form.elements.namedItem(name);
  return field instanceof HTMLInputElement ? field.value : '';
}

async function send(form: HTMLFormElement, pattern: string): Promise<void> {
  const button = form.querySelector('button');
  const came = form.querySelector('.came');
  if (button === null || came === null) return;
  const field = document.getElementById('token');
  const token = field instanceof HTMLInputElement ? field.value.trim() : '';
  const begun = performance.now();
  button.disabled = true;
  try {
    const headers: HeadersInit = token === '' ? {} : { Authorization: `Bearer ${token}` };
    const response = await fetch(`.${targetIn(form, pattern, '')}`, { headers });
    const text = await response.text();
    const ms = Math.round(performance.now() - begun);
    const from = response.headers.get('cache-status')?.replace('analytics-gateway; ', '') ?? '';
    const status = [`${response.status} ${response.statusText}`, `${ms} ms`, from];
    show(came, status.filter(Boolean).join(' · '), response.ok, fieldsOf(response), text);
  } catch (error) {
    show(came, `No reply: ${error instanceof Error ? error.message : error}`, false, '', '');
  }
  button.disabled = false;
}

function fieldsOf(response: Response): string {
  return [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n');
}

function show(came: Element, status: string, isGood: boolean, fields: string, body: string): void {
  const line = element('p', status);
  line.className = isGood ? 'status good' : 'status bad';
  came.replaceChildren(line);
  if (body !== '') came.append(element('pre', readable(body)));
  if (fields === '') return;
  const details = document.createElement('details');
  details.append(element('summary', 'Response fields'), element('pre', fields));
  came.append(details);
}

function element(name: string, text: string): HTMLElement {
  const made = document.createElement(name);
  made.textContent = text;
  if (name === 'pre') made.tabIndex = 0;
  return made;
}

/** JSON with line ends; what is very long is cut. */
function readable(body: string): string {
  let text = body;
  try {
    text = JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    // It is shown as it came.
  }
  return text.length > maxShown
    ? `${text.slice(0, maxShown)}\n… and ${text.length - maxShown} more characters`
    : text;
}
