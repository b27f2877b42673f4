/** The program of the console: shows what `/events` tells, in plain words and charts. */
import { showCallers, showProblems, showRequests } from './callers.ts';
import { charts, drawAll, drawMore, followPage, lastPoint } from './charts.ts';
import {
  $,
  bytes,
  clock,
  field,
  list,
  type Mood,
  make,
  number,
  type Row,
  say,
  set,
  span,
  table,
  time,
} from './page.ts';
import type { Cache, Circuit, Gate, Key, Reason, Status, Store, Workspace } from './status.ts';

/** A sentence, and how good that is. */
type Sentence = readonly [text: string, mood?: Mood];

const fromMemory = ['hit', 'negative', 'max-stale', 'stale-while-revalidate'];
const verdicts: Readonly<Record<Status['health'], readonly [string, Mood]>> = {
  ok: ['All is well', 'good'],
  degraded: ['Degraded', 'busy'],
  failing: ['Failing', 'bad'],
};
/** In the place of the verdict where all works, and reasons are shown below. */
const worksWithReasons = 'Works, with something to look at';
const colours: Readonly<Record<Mood, string>> = {
  good: '15703f',
  busy: 'b07400',
  bad: 'b3261e',
  '': '505e6e',
};
/** The workspace that is shown alone. */
const only = new URLSearchParams(location.search).get('workspace');
const ofOne = only === null ? '' : `?workspace=${encodeURIComponent(only)}`;

let lostAt: Date | undefined;
let latest: Status | undefined;
let events: EventSource | undefined;

function verdict(text: string, mood: Mood, since: string, reasons: readonly Reason[], at = ''): void {
  set($('state'), text);
  set($('since'), since);
  $('banner').className = mood;
  document.title = `${mood === 'good' ? '' : `${text} – `}Analytics gateway`;
  const icon = `data:image/svg+xml,%3Csvg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"%3E%3Ccircle cx="8" cy="8" r="7" fill="%23${colours[mood]}"/%3E%3C/svg%3E`;
  if ($('icon').getAttribute('href') !== icon) $('icon').setAttribute('href', icon);
  $('reasons').replaceChildren(
    ...reasons.map(({ detail, todo, cause, since: from }) => {
      const why = cause === null || detail.includes(cause) ? '' : ` (${cause})`;
      const item = make('li', `${detail}${why}`);
      const seconds = (Date.parse(at) - Date.parse(from)) / 1_000;
      item.append(make('span', `${seconds < 1 ? '' : `For ${span(seconds)}. `}${todo}`));
      return item;
    }),
  );
}

function gateText(gate: Gate, isDown: boolean): Sentence {
  const { attemptsPerSecond, closedForSeconds, limits, state } = gate;
  const rate = attemptsPerSecond === null ? '' : `, about ${number(attemptsPerSecond, 1)} a second`;
  if (isDown && state !== 'closed') return ['Nothing but trials is sent.', 'bad'];
  if (state !== 'closed' && (closedForSeconds ?? 0) > 2)
    return [`Held for another ${span(closedForSeconds)}: the upstream says that little is left.`, 'busy'];
  if (state === 'open' && limits.length > 0) return [`Open, within the told limit${rate}.`, 'good'];
  if (state === 'open') return [`Open: requests are sent as they come${rate}.`, 'good'];
  if (state === 'paced') return [`Open, paced: requests take turns${rate}.`, 'good'];
  if (state === 'half-open') return ['Testing the upstream.', 'busy'];
  if (state !== 'closed') return ['Switched off: each request waits by itself.'];
  return [`Closed for another ${span(closedForSeconds)}: the upstream answered 429.`, 'busy'];
}

function keyText(key: Key, isDown: boolean): Sentence {
  const failure = key.reloadFailure === null ? '' : `: ${key.reloadFailure}`;
  if (!key.loaded) return [`No key is loaded yet${failure}.`, 'bad'];
  if (key.rejected) return ['The upstream refuses it: put a new key into the secret store.', 'bad'];
  if (key.newKey?.standing === 'refused') {
    return ['The upstream refuses the new key; the one before stays in use.', 'busy'];
  }
  if (key.fallenBack) return ['The upstream refuses the newest key; this is the previous one.', 'busy'];
  if (key.reloadFailure !== null) {
    return [`The store gave no valid key; the last one stays. ${key.reloadFailure}`, 'busy'];
  }
  if (isDown && key.lastAcceptedAt !== null) return ['The upstream accepted it before it went down.'];
  return [key.lastAcceptedAt === null ? 'Loaded, not used yet.' : 'The upstream accepts it.', 'good'];
}

function circuitText(circuit: Circuit, attempts: number, isRefused: boolean): Sentence {
  const { state, probeInSeconds, failuresInARow, operations } = circuit;
  const down = operations.filter((one) => one.state === 'open').map(({ operation }) => operation);
  if (state === 'open') {
    const when = probeInSeconds !== null && probeInSeconds > 0 ? `in ${span(probeInSeconds)} or later ` : '';
    return [`It is down. The next request ${when}tries it again.`, 'bad'];
  }
  if (down.length > 0) return [`It fails for ${down.join(', ')}.`, 'bad'];
  if (failuresInARow > 0) return [`It has failed ${failuresInARow} times in a row.`, 'busy'];
  if (isRefused) return ['It answers, and refuses the key.', 'busy'];
  return attempts > 0 ? ['It answers.', 'good'] : ['Not asked yet.'];
}

function showPurge({ operations, purgeNeeds }: Status): void {
  const which = field('which', HTMLSelectElement);
  if (operations.length + 1 !== which.length) {
    which.replaceChildren(new Option('everything', ''), ...operations.map((name) => new Option(name)));
  }
  $('ask-token').hidden = purgeNeeds !== 'token';
  field('go', HTMLButtonElement).disabled = purgeNeeds === 'setting';
  if (purgeNeeds === 'setting') {
    set($('purged'), 'ADMIN_TOKEN_FROM is not set, so nothing can be purged from here.');
  }
}

function showFleet(store: Store | null, at: string): void {
  $('fleet').hidden = store === null;
  if (store === null) return;
  const refusal = store.reason === null ? '' : ` It refuses calls: ${store.reason}`;
  if (store.inUse) say('fleet-says', `They share a store.${refusal}`, refusal === '' ? 'good' : 'busy');
  else say('fleet-says', `The store is away: ${store.reason}`, 'bad');
  const sum = (name: 'requests' | 'attempts' | 'waiting'): string =>
    number(store.gateways.reduce((total, { figures }) => total + (figures?.[name] ?? 0), 0));
  const rows = store.gateways.map(({ id, isThis, host, version, startedAt, figures }): Row => {
    const counts = [figures?.requests, figures?.attempts, figures?.waiting];
    const up = span((Date.parse(at) - Date.parse(startedAt)) / 1_000);
    const shown = counts.map((count) => (count === undefined ? '–' : number(count)));
    return { cells: [`${id}${isThis ? ' (this one)' : ''}`, host, version, up, ...shown] };
  });
  const total: Row = { cells: ['All', '', '', '', sum('requests'), sum('attempts'), sum('waiting')] };
  table('gateways', rows.length > 1 ? [...rows, total] : rows, 'None is there.');
  list('store', [
    ['Store', `${store.kind === 'tcp' ? '' : `${store.kind}: `}${store.nodes.join(', ') || store.address}`],
    ['Reads found, joined', `${store.reads.found}, ${store.reads.joined}`],
    ['Turns at the upstream', turnsOf(store)],
    ['Round trip', store.latencySeconds === null ? 'never' : time(store.latencySeconds)],
    ['Failed calls', `${store.failures} of ${store.calls}`],
  ]);
}

function turnsOf({ gate }: Store): string {
  if (gate.role === 'alone') return 'each for itself';
  return gate.role === 'leads' ? 'given by this one' : `given by ${gate.leader}`;
}

const nameOf = (workspace: string | null): string => workspace ?? 'the one without a name';

function showWorkspaces({ workspaces, requests }: Status): void {
  const rows = workspaces.map(({ workspace, key, gate, circuit, cache, upstream }) => {
    const isDown = circuit.state === 'open';
    const asked = requests.counts
      .filter((one) => one.workspace === workspace)
      .reduce((sum, one) => sum + one.count, 0);
    const sentences = [
      keyText(key, isDown),
      circuitText(circuit, upstream.attempts, key.rejected),
      gateText(gate, isDown || key.rejected),
    ].map(([text, mood = '']) => [text, mood] as const);
    const counts = [number(asked), number(gate.waiting), number(cache.entries), bytes(cache.bytes)];
    return { cells: [nameOf(workspace), ...sentences, ...counts] };
  });
  table('workspaces', rows, '');
  for (const [at, cell] of $('workspaces').querySelectorAll('th').entries()) {
    const link = document.createElement('a');
    link.textContent = cell.textContent;
    link.href = `?workspace=${encodeURIComponent(workspaces[at]?.workspace ?? '')}`;
    cell.replaceChildren(link);
  }
}

function showCache({ cache, workspaces, requests }: Status): void {
  const shown: Cache = cache ?? {
    entries: workspaces.reduce((sum, one) => sum + one.cache.entries, 0),
    bytes: workspaces.reduce((sum, one) => sum + one.cache.bytes, 0),
    evictions: workspaces.reduce((sum, one) => sum + one.cache.evictions, 0),
    maxBytes: workspaces[0]?.cache.maxBytes ?? 0,
  };
  let asked = 0;
  let hits = 0;
  for (const one of requests.counts) {
    if (one.cache === null) continue;
    asked += one.count;
    if (fromMemory.includes(one.cache)) hits += one.count;
  }
  list('cache', [
    ['From memory', asked === 0 ? 'no request yet' : `${number((100 * hits) / asked, 1)} %`],
    ['Stored reads', number(shown.entries)],
    ['Memory', `${bytes(shown.bytes)} of ${bytes(shown.maxBytes)}`],
    ['Evicted', number(shown.evictions)],
  ]);
  const full = field('full', HTMLProgressElement);
  full.max = Math.max(1, shown.maxBytes);
  full.value = shown.bytes;
}

/** The parts of the one workspace that is shown. */
function showOne(one: Omit<Workspace, 'workspace'>, at: string, ago: (at: string | null) => string): void {
  const { key, gate, circuit, upstream } = one;
  const isDown = circuit.state === 'open';
  say('key-says', ...keyText(key, isDown));
  list('key', [
    ['Source', key.source],
    ['Fingerprint', key.fingerprint ?? 'none'],
    ['Generation', String(key.generation ?? 'none')],
    ['In use for', span(key.ageSeconds)],
    ['Last accepted', ago(key.lastAcceptedAt)],
    ['Last rejected', ago(key.lastRejectedAt)],
    ['Failed reads', number(key.reloadFailures)],
  ]);
  say('gate-says', ...gateText(gate, isDown || key.rejected));
  say('circuit-says', ...circuitText(circuit, upstream.attempts, key.rejected));
  const sum = (member: 'waiting' | 'refreshes'): string =>
    number(gate.callers.reduce((total, caller) => total + caller[member], 0));
  const { attemptsPerSecond: pace } = gate;
  const measured = lastPoint()?.['attempts'];
  list('gate', [
    ['Sent lately', typeof measured === 'number' ? `${number(measured, 1)} a second` : '–'],
    ['Learned pace', pace === null ? 'none' : `${number(pace, 1)} a second`],
    ['Attempts', number(upstream.attempts)],
    ['Retries', number(upstream.retries)],
    ['Answered with 429', number(gate.refusals)],
    ['In flight', number(upstream.inFlight)],
    ['Requests waiting', sum('waiting')],
    ['Refreshes waiting', sum('refreshes')],
  ]);
  showLimits(gate.limits, at);
}

/** A bar for each window of the told limit. */
function showLimits(limits: Gate['limits'], at: string): void {
  const bars = limits.map(({ window, limit, used, remaining, resetsInSeconds }) => {
    const left = `Told limit: ${number(used)} of ${number(limit)} in ${window} used, ${number(remaining)} left`;
    const back = new Date(Date.parse(at) + resetsInSeconds * 1_000);
    const when = resetsInSeconds < 43_200 ? clock(back) : back.toLocaleString('en-GB');
    const bar = document.createElement('progress');
    bar.max = limit;
    bar.value = Math.min(used, limit);
    bar.ariaLabel = `Limit of ${window}`;
    return [make('p', used === 0 ? left : `${left}, resets at ${when}`), bar];
  });
  $('limits').replaceChildren(...bars.flat());
}

function show(status: Status): void {
  latest = status;
  const isOne = status.key !== null;
  $('each').hidden = isOne;
  $('of-key').hidden = !isOne;
  $('of-up').hidden = !isOne;
  $('back').hidden = only === null;
  const at = Date.parse(status.at);
  const since = (time: string): string => span((at - Date.parse(time)) / 1_000);
  const [plain, mood] = verdicts[status.health];
  const text = status.health === 'ok' && status.reasons.length > 0 ? worksWithReasons : plain;
  verdict(text, mood, `for ${since(status.since)}`, status.reasons, status.at);
  const title = only === null ? 'Version ' : `Workspace ${nameOf(only || null)}, version `;
  const facts = [
    `${title}${status.version}`,
    `up for ${span(status.uptimeSeconds)}`,
    `${bytes(status.process.residentBytes)} resident`,
    `requests in flight: ${number(status.requests.inFlight)}`,
  ];
  set($('about'), facts.join(', '));
  if (status.key === null) showWorkspaces(status);
  else showOne(status, status.at, (time) => (time === null ? 'never' : `${since(time)} ago`));
  showCache(status);
  showFleet(status.sharedStore, status.at);
  showCallers(status);
  showRequests(status);
  showProblems(status);
  showPurge(status);
}

function listen(): void {
  events?.close();
  const source = new EventSource(`events${ofOne}`);
  events = source;
  source.addEventListener('history', ({ data }) => drawAll(JSON.parse(data)));
  source.addEventListener('point', ({ data }) => drawMore(JSON.parse(data)));
  source.addEventListener('status', ({ data }) => {
    lostAt = undefined;
    show(JSON.parse(data));
  });
  source.addEventListener('error', () => {
    lostAt ??= new Date();
    verdict(`The gateway cannot be reached since ${clock(lostAt)}`, 'bad', 'Below is its last state.', []);
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3_000);
  });
}

async function purge(): Promise<void> {
  const which = field('which', HTMLSelectElement).value;
  const token = field('token', HTMLInputElement).value;
  const query = new URLSearchParams();
  if (which !== '') query.set('operation', which);
  if (only !== null) query.set('workspace', only);
  const headers: HeadersInit = token === '' ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(`cache/purge?${query}`, { method: 'POST', headers });
  const result = await answer.json();
  const removed = answer.ok
    ? `Removed reads: ${number(result.entries)} (${bytes(result.bytes)}).`
    : result.detail;
  set($('purged'), removed);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) events?.close();
  else listen();
});
$('search').addEventListener('input', () => {
  if (latest !== undefined) showCallers(latest);
});
$('purge').addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = field('go', HTMLButtonElement);
  button.disabled = true;
  await purge().catch(() => set($('purged'), 'The gateway cannot be reached.'));
  button.disabled = false;
});
followPage();
listen();
// For the browser's developer tools, and for tests.
Object.assign(globalThis, { gatewayConsole: { charts, drawAll, close: () => events?.close() } });
