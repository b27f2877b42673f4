/** The figures of a storm as a page of the documents. Pure. */
import type { SideResult } from './table.ts';

const columns = [
  'limit',
  'side',
  'goodput',
  '429s',
  'caller',
  'share',
  'p50',
  'p99',
  'turned away',
  'failed',
];

export function documentOf(
  results: readonly { scenario: string; sides: readonly SideResult[] }[],
  seconds: number,
  machine: string,
): string {
  const rows = results.flatMap(({ scenario, sides }) =>
    sides.flatMap(({ name, figures }) =>
      figures.callers.map((caller, i) =>
        [
          i === 0 ? scenario : '',
          i === 0 ? name : '',
          i === 0 ? figures.goodput.toFixed(3) : '',
          i === 0 ? percent(figures.wasted) : '',
          caller.name,
          percent(caller.shareMet),
          milliseconds(caller.p50Ms),
          milliseconds(caller.p99Ms),
          String(caller.refused),
          String(caller.failed),
        ].join(' | '),
      ),
    ),
  );
  return `# Many callers, one limit

You want to know what changes for callers when the upstream limits requests. Both ways use nearly the whole limit, and
callers that retry for themselves waste a large part of their calls on 429s, while the greedy one takes more than its fair
share (100 % is the fair share) and the others less. Through the gateway few calls are wasted, and each caller
gets about its share.

Written by \`npm run bench:storm\`; do not edit. The same callers, each retrying for itself and through the gateway, over
real sockets, against an upstream with a hidden limit (a burst of 10 unless the name says otherwise), for ${seconds} s,
learning included. greedy: 40 loops; dashboard: 4 loops that think 300 ms; polite: one loop that thinks 200 ms.

${[columns.join(' | '), columns.map(() => '---').join('|'), ...rows].map((row) => `| ${row} |`).join('\n')}

*goodput*: what the upstream accepted, of what limit and demand made possible. *429s*: of all attempts. *share*: of the
lesser of a caller's demand and its max-min fair share of the limit. *turned away*: told to come back later.

${machine}.
`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function milliseconds(ms: number): string {
  return Number.isNaN(ms) ? '–' : `${Math.round(ms)} ms`;
}
