/**
 * The script of the API page: puts the address that the browser uses into the examples (a proxy before the gateway may
 * have changed it), copies an example, and sends requests. It stores nothing; the token stays in its field.
 */
export const apiPageScript = `'use strict';
const main = document.querySelector('main');
const maxShown = 200000;

for (const code of document.querySelectorAll('.example code')) {
  code.textContent = code.textContent.replaceAll(main.dataset.origin, location.origin);
  const button = document.createElement('button');
  button.className = 'copy';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  code.parentElement.after(button);
}

for (const form of document.querySelectorAll('form')) {
  form.hidden = false;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (form.dataset.path !== undefined) send(form);
  });
}

async function send(form) {
  const button = form.querySelector('button');
  const came = form.querySelector('.came');
  const query = form.elements['?'].value.replace(/^\\?/, '');
  const path = form.dataset.path.replace(/:(\\w+)/g, (_all, name) => form.elements[name].value);
  const token = document.getElementById('token').value.trim();
  const begun = performance.now();
  button.disabled = true;
  try {
    const headers = token === '' ? {} : { Authorization: 'Bearer ' + token };
    const response = await fetch(path + (query === '' ? '' : '?' + query), { headers });
    const text = await response.text();
    const ms = Math.round(performance.now() - begun);
    const from = response.headers.get('cache-status')?.replace('analytics-gateway; ', '');
    const status = [response.status + ' ' + response.statusText, ms + ' ms', from].filter(Boolean).join(' · ');
    show(came, status, response.ok, fieldsOf(response), text);
  } catch (error) {
    show(came, 'No reply: ' + error.message, false, '', '');
  }
  button.disabled = false;
}

function fieldsOf(response) {
  return [...response.headers].map(([name, value]) => name + ': ' + value).join('\\n');
}

function show(came, status, isGood, fields, body) {
  const line = element('p', status);
  line.className = isGood ? 'status good' : 'status bad';
  const details = document.createElement('details');
  details.append(element('summary', 'Response fields'), element('pre', fields));
  came.replaceChildren(line, ...(body === '' ? [] : [element('pre', readable(body))]), ...(fields === '' ? [] : [details]));
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  if (name === 'pre') made.tabIndex = 0;
  return made;
}

function readable(body) {
  let text = body;
  try {
    text = JSON.stringify(JSON.parse(body), null, 2);
  } catch {}
  return text.length > maxShown ? text.slice(0, maxShown) + '\\n… and ' + (text.length - maxShown) + ' more characters' : text;
}
`;
