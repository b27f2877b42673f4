/** Who asks: the callers, the one that asks too much, and the problems that they got. */
import { $, clock, field, type Mood, number, type Row, say, span, table } from './page.ts';
import type { Status } from './status.ts';

interface Demand {
  readonly name: string;
  readonly waiting: number;
  /** In the last minute. */
  readonly refused: number;
}

/** With fewer requests that wait or were refused no caller is to blame. */
const leastPressure = 10;
/** A rate of less says nothing. */
const leastSeconds = 5;

/** The caller with most of what waits and was refused, where it has more than half of it, and how much of it in percent. */
function findCulprit(demands: readonly Demand[]): readonly [name: string, percent: number] | undefined {
  const all = demands.reduce((sum, { waiting, refused }) => sum + waiting + refused, 0);
  const [most] = demands.toSorted((one, other) => other.waiting + other.refused - one.waiting - one.refused);
  if (most === undefined || demands.length < 2 || all < leastPressure) return undefined;
  const own = most.waiting + most.refused;
  return own * 2 > all ? [most.name, Math.round((100 * own) / all)] : undefined;
}

export function showCallers({ at, callers, gate, workspaces }: Status): void {
  const gates = gate === null ? workspaces.map((one) => one.gate) : [gate];
  const waits = new Map<string, { waiting: number; oldestWaitSeconds: number }>();
  for (const one of gates.flatMap((each) => each.callers)) {
    const { waiting = 0, oldestWaitSeconds = 0 } = waits.get(one.name) ?? {};
    waits.set(one.name, {
      waiting: waiting + one.waiting,
      oldestWaitSeconds: Math.max(oldestWaitSeconds, one.oldestWaitSeconds ?? 0),
    });
  }
  const all = callers.list.map((one) => ({
    ...one,
    waiting: 0,
    oldestWaitSeconds: 0,
    ...waits.get(one.name),
  }));
  const culprit = findCulprit(
    all.map(({ name, waiting, recent }) => ({ name, waiting, refused: recent.refused })),
  );
  const wanted = field('search', HTMLInputElement).value.trim().toLowerCase();
  $('find').hidden = all.length < 20;
  const rows = all
    .filter(({ name }) => name.toLowerCase().includes(wanted))
    .toSorted((one, other) => Number(other.name === culprit?.[0]) - Number(one.name === culprit?.[0]))
    .map((one): Row => {
      const { name, waiting, recent, requests, nextExpiry, lastUse, operations, enforce } = one;
      const cells: Row['cells'] = [
        name,
        recent.seconds < leastSeconds ? '–' : number(recent.requests / recent.seconds, 1),
        number(recent.refused),
        number(waiting),
        waiting === 0 ? '–' : span(one.oldestWaitSeconds),
        requests === null ? '–' : number(requests),
        one.by.join(', ') || 'none',
        lastUse
          .map(({ lastUsed }) => lastUsed ?? '')
          .sort()
          .at(-1) || '–',
        nextExpiry === null ? 'never' : ending(nextExpiry, at),
        `${operations === 'every' ? 'everything' : operations.join(', ') || 'nothing'}${enforce ? '' : ' (not enforced)'}`,
      ];
      return { cells, mood: name === culprit?.[0] ? 'busy' : '' };
    });
  table('callers', rows, wanted === '' ? 'No caller.' : 'No caller has this in its name.');
  const { count, problems } = callers;
  const cut = count > all.length ? `The first ${all.length} of ${number(count)}.` : '';
  const asksMost =
    culprit &&
    `${culprit[0]} asks most: ${culprit[1]} % of what waits and was refused in the last minute is its own.`;
  const refused = `The newest version of the callers file is refused: ${problems.join('; ')}`;
  say('callers-says', problems.length > 0 ? refused : (asksMost ?? cut), 'busy');
}

/** When the first of a caller's tokens ends; one that ends soon stands out. */
function ending(then: string, now: string): readonly [string, Mood] {
  const seconds = (Date.parse(then) - Date.parse(now)) / 1_000;
  return [seconds < 0 ? 'ended' : `in ${span(seconds)}`, seconds < 14 * 86_400 ? 'busy' : ''];
}

const inWorkspace = (workspace: string | null, text: string | null): string =>
  `${workspace === null ? '' : `${workspace}: `}${text ?? 'no operation'}`;

export function showProblems({ requests: { problemGroups } }: Status): void {
  const rows = problemGroups.slice(0, 10).map((one): Row => {
    const { workspace, code, count, callers, callerCount, since, lastAt, requestId, cause, todo } = one;
    const others = callerCount - callers.length;
    const whose = [...callers, ...(others > 0 ? [`${others} more`] : [])].join(', ');
    const lasts = (Date.parse(lastAt) - Date.parse(since)) / 1_000;
    return {
      cells: [
        inWorkspace(workspace, code),
        `× ${number(count)}`,
        whose || 'unknown',
        lasts < 1 ? clock(lastAt) : `${clock(lastAt)}, for ${span(lasts)}`,
        cause ?? '–',
        todo,
        requestId ?? 'the caller’s own',
      ],
    };
  });
  table('problems', rows, 'No problem yet.');
}

export function showRequests({ requests }: Status): void {
  const groups = new Map<string, { cells: string[]; count: number }>();
  for (const { workspace, operation, status, count } of requests.counts) {
    const shownStatus = status === 499 ? '499 (caller left)' : String(status ?? 'other');
    const cells = [inWorkspace(workspace, operation), shownStatus];
    const key = cells.join(' ');
    groups.set(key, { cells, count: count + (groups.get(key)?.count ?? 0) });
  }
  const most = [...groups.values()].sort((one, other) => other.count - one.count);
  table(
    'requests',
    most.map(({ cells, count }) => ({ cells: [...cells, number(count)] })),
    'No request yet.',
  );
}
