/**
 * The script of the console: shows what `/events` tells, in plain words and charts. It writes text only
 * (`textContent`): names come from a file, and none of them may become markup.
 */
import { chartsScript } from './console-charts-script.ts';

export const consoleScript = `'use strict';
const $ = (id) => document.getElementById(id);
const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const make = (tag, text, className) => { const node = document.createElement(tag); if (text) node.textContent = text; if (className) node.className = className; return node; };
const say = (id, text, mood) => { set($(id), text); $(id).className = 'says ' + (mood || ''); };
const number = (value, digits = 0) => value.toLocaleString('en', { maximumFractionDigits: digits });
// Of 24 hours, wherever the reader is.
const clock = (at, hasSeconds = true) => new Date(at).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: hasSeconds ? '2-digit' : undefined });
const span = (s) => s === null ? 'never' : s < 120 ? number(s) + ' s' : s < 7200 ? number(s / 60) + ' min' : s < 172800 ? number(s / 3600) + ' h' : number(s / 86400) + ' days';
const bytes = (n) => n < 1024 ? n + ' B' : n < 1048576 ? number(n / 1024, 1) + ' KiB' : number(n / 1048576, 1) + ' MiB';
const breakable = (node, text) => { const parts = text.split(/(?<=[/,:])/); node.replaceChildren(...parts.flatMap((part, at) => at > 0 ? [document.createElement('wbr'), part] : [part])); return node; };
const list = (id, pairs) => $(id).replaceChildren(...pairs.flatMap(([name, value]) => [make('dt', name), breakable(make('dd'), value)]));
const table = (id, rows, none) => {
  const labels = [...$(id).parentNode.querySelectorAll('thead th')].map((one) => [one.textContent, one.className]);
  $(id).parentNode.hidden = rows.length === 0;
  set($(id).parentNode.nextElementSibling, rows.length === 0 ? none : '');
  $(id).replaceChildren(...rows.map((cells) => {
    const row = document.createElement('tr');
    row.setAttribute('role', 'row');
    row.append(...cells.map((cell, at) => {
      const node = breakable(make(at > 0 ? 'td' : 'th', '', labels[at][1]), cell);
      node.setAttribute('role', at > 0 ? 'cell' : 'rowheader');
      if (at > 0) node.dataset.label = labels[at][0]; else node.scope = 'row';
      return node;
    }));
    return row;
  }));
};
const fromMemory = ['hit', 'negative', 'max-stale', 'stale-while-revalidate'];
const verdicts = { ok: ['All is well', 'good'], degraded: ['Degraded', 'busy'], failing: ['Failing', 'bad'] };
let lostAt, latest;
const only = new URLSearchParams(location.search).get('workspace');

function verdict(text, mood, since, reasons) {
  set($('state'), text);
  set($('since'), since);
  $('banner').className = mood;
  document.title = (mood === 'good' ? '' : text + ' \\u2013 ') + 'Analytics gateway';
  const colour = { good: '15703f', busy: 'b07400', bad: 'b3261e' }[mood];
  const icon = 'data:image/svg+xml,%3Csvg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"%3E%3Ccircle cx="8" cy="8" r="7" fill="%23' + colour + '"/%3E%3C/svg%3E';
  if ($('icon').getAttribute('href') !== icon) $('icon').setAttribute('href', icon);
  $('reasons').replaceChildren(...reasons.map(({ detail, todo }) => { const item = make('li', detail); item.append(make('span', todo)); return item; }));
}

function gateText(gate, isDown) {
  const rate = gate.attemptsPerSecond === null ? '' : ', about ' + number(gate.attemptsPerSecond, 1) + ' a second';
  if (isDown && gate.state !== 'closed') return ['Nothing but probes is sent.', 'bad'];
  return {
    open: ['Open: requests are sent as they come' + rate + '.', 'good'],
    paced: ['Open, paced: requests take turns' + rate + '.', 'good'],
    'half-open': ['Testing the upstream.', 'busy'],
    closed: ['Closed for another ' + span(gate.closedForSeconds) + ': the upstream answered 429.', 'busy'],
  }[gate.state] ?? ['Switched off: each request waits by itself.'];
}

function keyText(key, isDown) {
  if (!key.loaded) return ['No key is loaded yet' + (key.reloadFailure ? ': ' + key.reloadFailure : '') + '.', 'bad'];
  if (key.rejected) return ['The upstream refuses it: put a new key into the secret store.', 'bad'];
  if (key.fallenBack) return ['The upstream refuses the newest key; this is the previous one.', 'busy'];
  if (key.newKey?.standing === 'refused') return ['The upstream refuses the new key; the one before stays in use.', 'busy'];
  if (key.reloadFailure) return ['The store gave no valid key; the last one stays. ' + key.reloadFailure, 'busy'];
  if (isDown && key.lastAcceptedAt) return ['The upstream accepted it before it went down.'];
  return [key.lastAcceptedAt ? 'The upstream accepts it.' : 'Loaded, not used yet.', 'good'];
}

function circuitText({ state, probeInSeconds, failuresInARow, operations }, attempts, isRefused) {
  const down = operations.filter((one) => one.state === 'open').map((one) => one.operation);
  if (state === 'open') return ['It is down. The next request ' + (probeInSeconds > 0 ? 'in ' + span(probeInSeconds) + ' or later ' : '') + 'tries it again.', 'bad'];
  if (down[0]) return ['It fails for ' + down.join(', ') + '.', 'bad'];
  if (failuresInARow > 0) return ['It has failed ' + failuresInARow + ' times in a row.', 'busy'];
  if (isRefused) return ['It answers, and refuses the key.', 'busy'];
  return attempts ? ['It answers.', 'good'] : ['Not asked yet.'];
}

function showCallers({ callers, gate, workspaces }) {
  const gates = gate ? [gate] : workspaces.map((one) => one.gate);
  const lines = new Map(gates.flatMap((gate) => gate.callers).map((line) => [line.name, line]));
  const all = callers.list.reduce((sum, one) => sum + (one.requests ?? 0), 0);
  const wanted = $('search').value.trim().toLowerCase();
  const shown = callers.list.filter(({ name }) => name.toLowerCase().includes(wanted));
  $('find').hidden = callers.list.length < 20;
  table('callers', shown.map(({ name, operations, by, requests }) => {
    const { waiting = 0, oldestWaitSeconds = 0, refreshes = 0 } = lines.get(name) ?? {};
    const share = requests === null || all === 0 ? '\\u2013' : number(100 * requests / all) + ' %';
    return [name, share, requests === null ? '\\u2013' : number(requests), number(waiting), waiting === 0 ? '\\u2013' : span(oldestWaitSeconds), number(refreshes), by.join(', ') || 'none', operations === 'every' ? 'everything' : operations.join(', ') || 'nothing'];
  }), wanted === '' ? 'No caller.' : 'No caller has this in its name.');
  say('callers-says', callers.problems.length > 0 ? 'The newest version of the callers file is refused: ' + callers.problems.join('; ') : callers.count > callers.list.length ? 'The first ' + callers.list.length + ' of ' + number(callers.count) + '.' : '', 'busy');
}

function showRequests({ requests }) {
  const groups = new Map();
  for (const { workspace, operation, status, count } of requests.counts) {
    const cells = [(workspace ? workspace + ': ' : '') + (operation ?? 'no operation'), status === 499 ? '499 (caller left)' : String(status ?? 'other')];
    const key = cells.join(' ');
    groups.set(key, { cells, count: count + (groups.get(key)?.count ?? 0) });
  }
  table('requests', [...groups.values()].sort((one, other) => other.count - one.count).map(({ cells, count }) => [...cells, number(count)]), 'No request yet.');
  table('problems', requests.recentProblems.slice(0, 10).map((one) => [clock(one.at), one.code, one.caller ?? 'unknown caller', (one.workspace ? one.workspace + ': ' : '') + (one.operation ?? 'no operation'), one.requestId ?? 'the caller\\u2019s own']), 'No problem yet.');
}

function showPurge({ operations, purgeNeeds }) {
  if (operations.length + 1 !== $('which').length) $('which').replaceChildren(new Option('everything', ''), ...operations.map((name) => new Option(name)));
  $('ask-token').hidden = purgeNeeds !== 'token';
  $('go').disabled = purgeNeeds === 'setting';
  if (purgeNeeds === 'setting') set($('purged'), 'ADMIN_TOKEN_FROM is not set, so nothing can be purged from here.');
}

function showFleet(store) {
  $('fleet').hidden = !store;
  if (!store) return;
  say('fleet-says', ...(store.inUse ? ['They share a store.' + (store.reason ? ' It refuses calls: ' + store.reason : ''), store.reason ? 'busy' : 'good'] : ['The store is away: ' + store.reason, 'bad']));
  list('store', [...store.gateways.map((one) => [one.host, one.version + (one.isThis ? ', this one' : '')]), ['Reads found, joined', store.reads.found + ', ' + store.reads.joined], ['Turns at the upstream', turnsOf(store)], ['Round trip', store.latencySeconds === null ? 'never' : time(store.latencySeconds)], ['Failed calls', store.failures + ' of ' + store.calls]]);
}

function turnsOf({ gate, gateways }) {
  if (gate.role === 'alone') return 'each for itself';
  const leader = gateways.find((one) => one.id === gate.leader);
  return gate.role === 'leads' ? 'given by this one' : 'given by ' + (leader ? leader.host : gate.leader);
}

const nameOf = (workspace) => workspace ?? 'the one without a name';

function showWorkspaces({ workspaces, requests }) {
  const all = new Map(workspaces.map((one) => [nameOf(one.workspace), one]));
  table('workspaces', workspaces.map(({ workspace, key, gate, circuit, cache, upstream }) => {
    const isDown = circuit.state === 'open';
    const asked = requests.counts.filter((one) => one.workspace === workspace).reduce((sum, one) => sum + one.count, 0);
    return [nameOf(workspace), keyText(key, isDown)[0], circuitText(circuit, upstream.attempts, key.rejected)[0], gateText(gate, isDown || key.rejected)[0], number(asked), number(gate.waiting), number(cache.entries), bytes(cache.bytes)];
  }), '');
  for (const cell of $('workspaces').querySelectorAll('th')) {
    const link = make('a', cell.textContent);
    link.href = '?workspace=' + encodeURIComponent(all.get(cell.textContent).workspace ?? '');
    cell.replaceChildren(link);
  }
}

const sumOf = (all, member) => all.reduce((sum, { cache }) => sum + cache[member], 0);

function show(status) {
  latest = status;
  const several = status.workspaces;
  $('each').hidden = several.length === 0;
  $('of-key').hidden = $('of-up').hidden = several.length > 0;
  $('last').hidden = only !== null;
  $('back').hidden = only === null;
  if (several.length > 0) showWorkspaces(status);
  const { requests } = status;
  const cache = status.cache ?? { entries: sumOf(several, 'entries'), bytes: sumOf(several, 'bytes'), evictions: sumOf(several, 'evictions'), maxBytes: several[0].cache.maxBytes };
  const at = Date.parse(status.at);
  const ago = (time) => time === null ? 'never' : span((at - Date.parse(time)) / 1000) + ' ago';
  verdict(...verdicts[status.health], 'for ' + span((at - Date.parse(status.since)) / 1000), status.reasons);
  set($('about'), (only === null ? 'Version ' : 'Workspace ' + nameOf(only || null) + ', version ') + status.version + ', up for ' + span(status.uptimeSeconds) + ', ' + bytes(status.process.residentBytes) + ' resident, ' + number(requests.inFlight) + ' requests in flight');
  if (status.key !== null) showOne(status, ago);
  const total = (test) => requests.counts.reduce((sum, one) => test(one) ? sum + one.count : sum, 0);
  const asked = total((one) => one.cache !== null), hits = total((one) => fromMemory.includes(one.cache));
  list('cache', [['From memory', asked === 0 ? 'no request yet' : number(100 * hits / asked, 1) + ' %'], ['Stored reads', number(cache.entries)], ['Memory', bytes(cache.bytes) + ' of ' + bytes(cache.maxBytes)], ['Evicted', number(cache.evictions)]]);
  $('full').max = Math.max(1, cache.maxBytes); $('full').value = cache.bytes;
  showFleet(status.sharedStore);
  showCallers(status);
  showRequests(status);
  showPurge(status);
}

function showOne({ key, gate, circuit, upstream }, ago) {
  say('key-says', ...keyText(key, circuit.state === 'open'));
  list('key', [['Source', key.source], ['Fingerprint', key.fingerprint || 'none'], ['Generation', String(key.generation ?? 'none')], ['In use for', span(key.ageSeconds)], ['Last accepted', ago(key.lastAcceptedAt)], ['Last rejected', ago(key.lastRejectedAt)], ['Failed reads', number(key.reloadFailures)]]);
  say('gate-says', ...gateText(gate, circuit.state === 'open' || key.rejected));
  say('circuit-says', ...circuitText(circuit, upstream.attempts, key.rejected));
  list('gate', [['Attempts', number(upstream.attempts)], ['Retries', number(upstream.retries)], ['Answered with 429', number(gate.refusals)], ['In flight', number(upstream.inFlight)], ['Requests waiting', number(gate.callers.reduce((sum, one) => sum + one.waiting, 0))], ['Refreshes waiting', number(gate.callers.reduce((sum, one) => sum + one.refreshes, 0))]]);
}
${chartsScript}
let events;
function listen() {
  events?.close();
  events = new EventSource('events' + (only === null ? '' : '?workspace=' + encodeURIComponent(only)));
  events.addEventListener('history', ({ data }) => drawAll(JSON.parse(data)));
  events.addEventListener('point', ({ data }) => drawMore(JSON.parse(data)));
  events.addEventListener('status', ({ data }) => { lostAt = undefined; show(JSON.parse(data)); });
  events.addEventListener('error', () => {
    lostAt ??= new Date();
    verdict('The gateway cannot be reached since ' + clock(lostAt), 'bad', 'Below is its last state.', []);
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}
document.addEventListener('visibilitychange', () => { if (document.hidden) events.close(); else listen(); });
$('search').addEventListener('input', () => { if (latest) showCallers(latest); });
$('purge').addEventListener('submit', async (event) => {
  event.preventDefault();
  const which = $('which').value, token = $('token').value;
  $('go').disabled = true;
  try {
    const headers = token === '' ? {} : { authorization: 'Bearer ' + token };
    const answer = await fetch('cache/purge?' + new URLSearchParams({ ...(which && { operation: which }), ...(only !== null && { workspace: only }) }), { method: 'POST', headers });
    const result = await answer.json();
    set($('purged'), answer.ok ? 'Removed reads: ' + number(result.entries) + ' (' + bytes(result.bytes) + ').' : result.detail);
  } catch { set($('purged'), 'The gateway cannot be reached.'); }
  $('go').disabled = false;
});
listen();
`.replaceAll(/\n\s+/g, '\n');
