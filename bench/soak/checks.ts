/** What the soak asks of the gateway, each as found and demanded. Pure: no `this`, no I/O, no clock. */
import type { Totals } from './ledger.ts';
import { floorsOf, type Sample, slopeOf } from './trend.ts';
import type { UpstreamCounts } from './upstream-process.ts';

export interface Check {
  readonly name: string;
  readonly found: string;
  readonly demanded: string;
  readonly isKept: boolean;
}

export interface Observed {
  readonly totals: Totals;
  /** `requests_started_total` and all of `requests_total`, when the load had ended. */
  readonly metrics: { readonly started: number; readonly done: number; readonly aborted: number };
  /** The lines of the log at that moment. */
  readonly linesThen: number;
  readonly wrong: readonly string[];
  readonly unaccounted: readonly string[];
  readonly upstream: UpstreamCounts;
  /** After the warm-up. */
  readonly samples: readonly Sample[];
  /** How long each `GET /livez` took, once a second; `undefined` for one that failed. */
  readonly livezMs: readonly (number | undefined)[];
  /** Requests that were under way when the gateway was told to stop, and how many of them got a 200. */
  readonly drain: { readonly sent: number; readonly answered: number };
  readonly exit: number | string;
  readonly errors: string;
}

/** A soak below this is no longer about the gateway: most of its answers are problems. */
const leastGoodShare = 0.9;
/** Not a measure of speed, for the machine may be busy with other work: a text that stops the process takes longer. */
const longestLivezMs = 2_000;
/** V8's heap grows and shrinks by this much without a leak, so a short run has to allow for it. */
const breathingMiB = 16;
const maxMiBPerMinute = 1;
const breathingDescriptors = 16;
const maxDescriptorsPerMinute = 1;

export function checksOf(observed: Observed): Check[] {
  return [...accountsKept(observed), ...processKept(observed)];
}

function accountsKept({
  totals,
  metrics,
  linesThen,
  wrong,
  unaccounted,
  upstream,
  drain,
}: Observed): Check[] {
  const good = totals.byStatus.get(200) ?? 0;
  const { stopped } = totals;
  return [
    check('answers that belong to another request, or lost', wrong.length, '0', wrong.length === 0),
    check('requests without exactly one line', unaccounted.length, '0', unaccounted.length === 0),
    check(
      'sent = answered + left',
      `${totals.sent} = ${totals.answered} + ${totals.left}`,
      'equal',
      totals.sent === totals.answered + totals.left,
    ),
    check(
      'metrics: started = done = lines',
      `${metrics.started} = ${metrics.done} = ${linesThen}`,
      'equal',
      metrics.started === metrics.done && metrics.done === linesThen,
    ),
    check(
      'at the end: started = finished + aborted = lines',
      stopped === undefined
        ? 'no line'
        : `${stopped.started} = ${stopped.finished} + ${stopped.aborted} = ${totals.lines}`,
      'equal',
      stopped !== undefined &&
        stopped.started === stopped.finished + stopped.aborted &&
        stopped.started === totals.lines &&
        stopped.aborted === totals.aborted,
    ),
    check(
      'answered with 200',
      percent(good / Math.max(1, totals.answered)),
      `at least ${percent(leastGoodShare)}`,
      good >= leastGoodShare * totals.answered,
    ),
    check('foul requests at the upstream', upstream.foul.length, '0', upstream.foul.length === 0),
    check(
      'answered while it stopped',
      `${drain.answered} of ${drain.sent}`,
      'all',
      drain.answered === drain.sent,
    ),
  ];
}

function processKept({ samples, livezMs, exit, errors }: Observed): Check[] {
  const minutes = (samples.at(-1)?.minutes ?? 0) - (samples[0]?.minutes ?? 0);
  const memory = slopeOf(floorsOf(samples, ({ residentMiB }) => residentMiB));
  const descriptors = slopeOf(floorsOf(samples, ({ descriptors }) => descriptors));
  const memoryBound = Math.max(maxMiBPerMinute, breathingMiB / minutes);
  const descriptorsBound = Math.max(maxDescriptorsPerMinute, breathingDescriptors / minutes);
  const failed = livezMs.filter((ms) => ms === undefined).length;
  const longest = Math.max(0, ...livezMs.map((ms) => ms ?? 0));
  return [
    check(
      'resident memory, slope',
      `${memory.toFixed(2)} MiB a minute (${range(samples.map((one) => one.residentMiB))} MiB)`,
      `at most ${memoryBound.toFixed(2)}`,
      samples.length > 1 && memory <= memoryBound,
    ),
    check(
      'descriptors beside connections, slope',
      `${descriptors.toFixed(2)} a minute (${range(samples.map((one) => one.descriptors))})`,
      `at most ${descriptorsBound.toFixed(2)}`,
      samples.length > 1 && descriptors <= descriptorsBound,
    ),
    check(
      'the event loop answers /livez',
      `${livezMs.length - failed} of ${livezMs.length}, longest ${longest.toFixed(0)} ms`,
      `all, each within ${longestLivezMs} ms`,
      livezMs.length > 0 && failed === 0 && longest <= longestLivezMs,
    ),
    check('exit status after SIGTERM', exit, '0', exit === 0),
    check('standard error', `${errors.length} characters`, 'none', errors === ''),
  ];
}

function check(name: string, found: string | number, demanded: string, isKept: boolean): Check {
  return { name, found: String(found), demanded, isKept };
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function range(values: readonly number[]): string {
  return values.length === 0
    ? 'none'
    : `${Math.min(...values).toFixed(0)} to ${Math.max(...values).toFixed(0)}`;
}

/** A table for a terminal. */
export function tableOf(checks: readonly Check[]): string {
  const rows = checks.map(({ name, found, demanded, isKept }) => [
    isKept ? 'kept' : 'BROKEN',
    name,
    found,
    demanded,
  ]);
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
