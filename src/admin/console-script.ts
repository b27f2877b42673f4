/**
 * The script of the console: asks `/status` every two seconds and shows it in plain words. It writes text only
 * (`textContent`): names come from a file, and none of them may become markup.
 */
export const consoleScript = `'use strict';
const $ = (id) => document.getElementById(id);
const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const make = (tag, text, className) => { const node = document.createElement(tag); node.textContent = text; if (className) node.className = className; return node; };
const say = (id, text, mood) => { set($(id), text); $(id).className = (id === 'state' ? '' : 'says ') + (mood || ''); };
const number = (value, digits = 0) => value.toLocaleString('en', { maximumFractionDigits: digits });
const span = (s) => s === null ? 'never' : s < 120 ? number(s) + ' s' : s < 7200 ? number(s / 60) + ' min' : s < 172800 ? number(s / 3600) + ' h' : number(s / 86400) + ' days';
const bytes = (n) => n < 1024 ? n + ' B' : n < 1048576 ? number(n / 1024, 1) + ' KiB' : number(n / 1048576, 1) + ' MiB';
const list = (id, pairs) => $(id).replaceChildren(...pairs.flatMap(([name, value]) => [make('dt', name), make('dd', value)]));
const table = (id, rows, none, ...numbers) => $(id).replaceChildren(...(rows.length > 0 ? rows : [[none]]).map((cells) => {
  const row = document.createElement('tr');
  row.append(...cells.map((cell, at) => make(at > 0 ? 'td' : 'th', cell, numbers.includes(at) ? 'number' : '')));
  row.firstChild.scope = 'row';
  return row;
}));
const fromMemory = ['hit', 'negative', 'max-stale', 'stale-while-revalidate'];
const history = [];
let last, lostAt;

function gateText(gate) {
  const rate = gate.attemptsPerSecond === null ? '' : ', about ' + number(gate.attemptsPerSecond, 1) + ' a second';
  return {
    open: ['Open: requests are sent as they come' + rate + '.', 'good'],
    paced: ['Open, paced: requests take turns' + rate + '.', 'good'],
    probing: ['Testing the upstream.', 'busy'],
    closed: ['Closed for another ' + span(gate.closedForSeconds) + ': the upstream answered 429.', 'busy'],
  }[gate.state] ?? ['Switched off: each request waits by itself.'];
}

function keyText(key) {
  if (!key.loaded) return ['No key is loaded yet' + (key.reloadFailure ? ': ' + key.reloadFailure : '') + '.', 'bad'];
  if (key.rejected) return ['The upstream rejects it: put a new key into the secret store.', 'bad'];
  if (key.reloadFailure) return ['The store gave no valid key; the last one stays. ' + key.reloadFailure, 'busy'];
  return [key.lastAcceptedAt ? 'The upstream accepts it.' : 'Loaded, not used yet.', 'good'];
}

function circuitText({ state, probeInSeconds, failuresInARow, operations }, attempts) {
  const down = operations.filter((one) => one.state === 'open').map((one) => one.operation);
  if (state === 'open') return ['It is down. Next probe in ' + span(probeInSeconds) + '.', 'bad'];
  if (down[0]) return ['It fails for ' + down.join(', ') + '.', 'bad'];
  if (failuresInARow > 0) return ['It has failed ' + failuresInARow + ' times in a row.', 'busy'];
  return attempts ? ['It answers.', 'good'] : ['Not asked yet.'];
}

function showFleet(store) {
  $('fleet').hidden = !store;
  if (!store) return;
  say('fleet-says', ...(store.inUse ? ['They share a store.' + (store.reason ? ' It refuses calls: ' + store.reason : ''), store.reason ? 'busy' : 'good'] : ['The store is away: ' + store.reason, 'bad']));
  list('store', [...store.gateways.map((one) => [one.host, one.version + (one.isThis ? ', this one' : '')]), ['Reads found, joined', store.reads.found + ', ' + store.reads.joined], ['Round trip', span(store.latencySeconds)], ['Failed calls', store.failures + ' of ' + store.calls]]);
}

function show(status) {
  const { key, gate, circuit, cache, requests, callers, upstream } = status;
  const at = Date.parse(status.at);
  const ago = (time) => time === null ? 'never' : span((at - Date.parse(time)) / 1000) + ' ago';
  if (status.ready) say('state', 'Ready', 'good'); else say('state', 'Not ready: ' + status.notReady, 'bad');
  set($('about'), 'Version ' + status.version + ', up for ' + span(status.uptimeSeconds) + ', ' + bytes(status.process.residentBytes) + ' resident');

  say('key-says', ...keyText(key));
  list('key', [['Source', key.source], ['Fingerprint', key.fingerprint || 'none'], ['Generation', String(key.generation ?? 'none')], ['In use for', span(key.ageSeconds)], ['Last accepted', ago(key.lastAcceptedAt)], ['Last rejected', ago(key.lastRejectedAt)], ['Failed reads', number(key.reloadFailures)]]);

  say('gate-says', ...gateText(gate));
  say('circuit-says', ...circuitText(circuit, upstream.attempts));
  list('gate', [['Attempts', number(upstream.attempts)], ['Retries', number(upstream.retries)], ['Answered with 429', number(gate.refusals)], ['In flight', number(upstream.inFlight)], ['Waiting', number(gate.waiting)]]);

  const total = (test) => requests.counts.reduce((sum, one) => test(one) ? sum + one.count : sum, 0);
  const asked = total(({ cache }) => cache !== null), hits = total(({ cache }) => fromMemory.includes(cache));
  list('cache', [['Answered from memory', asked === 0 ? 'no request yet' : number(100 * hits / asked, 1) + ' %'], ['Stored reads', number(cache.entries)], ['Memory', bytes(cache.bytes) + ' of ' + bytes(cache.maxBytes)], ['Evicted', number(cache.evictions)]]);
  $('full').max = Math.max(1, cache.maxBytes); $('full').value = cache.bytes;

  showFleet(status.sharedStore);
  const groups = new Map();
  for (const { operation, status: code, count } of requests.counts) {
    const name = operation + ' ' + code;
    const cells = [operation ?? '(none)', code === 499 ? '499 (left)' : String(code ?? 'other')];
    groups.set(name, { cells, count: count + (groups.get(name)?.count ?? 0) });
  }
  const seconds = last ? (at - last.at) / 1000 : 0;
  const rate = (now, before) => seconds > 0 ? number(Math.max(0, now - before) / seconds, 1) : '–';
  table('requests', [...groups].sort(([, one], [, other]) => other.count - one.count).map(([name, { cells, count }]) => [...cells, rate(count, last?.groups.get(name)?.count ?? 0), number(count)]), 'No request yet.', 2, 3);
  if (seconds > 0) history.push(Math.max(0, requests.finished - last.finished) / seconds);
  if (history.length > 60) history.shift();
  const most = Math.max(1, ...history);
  $('line').setAttribute('points', history.map((value, index) => (60 - history.length + index) * 2 + ',' + (29 - 28 * value / most)).join(' '));
  set($('rate'), seconds > 0 ? rate(requests.finished, last.finished) + ' a second, ' + number(requests.inFlight) + ' in flight, ' + number(requests.connections) + ' connections' : '');

  const lines = new Map(gate.callers.map((line) => [line.name, line]));
  table('callers', callers.list.map(({ name, operations, by, requests }) => [name, requests === null ? '?' : number(requests), number(lines.get(name)?.waiting ?? 0), span(lines.get(name)?.oldestWaitSeconds ?? 0), by.join(', '), operations === 'every' ? 'everything' : operations.join(', ') || 'nothing']), 'No caller.', 1, 2, 3);
  set($('callers-says'), callers.problems.length > 0 ? 'The newest version of the callers file is refused: ' + callers.problems.join('; ') : callers.count > callers.list.length ? 'The first ' + callers.list.length + ' of ' + number(callers.count) + '.' : '');

  if (status.operations.length + 1 !== $('which').length) $('which').replaceChildren(new Option('everything', ''), ...status.operations.map((name) => new Option(name)));
  last = { at, groups, finished: requests.finished };
}

async function ask() {
  try {
    const answer = await fetch('status', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error();
    show(await answer.json());
    lostAt = undefined;
  } catch {
    lostAt ??= new Date();
    last = undefined;
    say('state', 'The gateway cannot be reached since ' + lostAt.toLocaleTimeString() + '. Below is its last state.', 'bad');
  }
}

$('purge').addEventListener('submit', async (event) => {
  event.preventDefault();
  const which = $('which').value;
  $('go').disabled = true;
  try {
    const answer = await fetch('cache/purge' + (which ? '?operation=' + encodeURIComponent(which) : ''), { method: 'POST' });
    const result = await answer.json();
    set($('purged'), answer.ok ? 'Removed reads: ' + number(result.entries) + ' (' + bytes(result.bytes) + ').' : result.detail);
  } catch { set($('purged'), 'The gateway cannot be reached.'); }
  $('go').disabled = false;
  ask();
});
const turn = async () => { if (!document.hidden) await ask(); setTimeout(turn, 2000); };
turn();
`.replaceAll(/\n\s+/g, '\n');
