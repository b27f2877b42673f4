/** One scenario with one seed: the figures that the laboratory looks at. */
import { type Figures, simulate } from '../../test/support/gate-simulation.ts';
import type { Row } from './scenarios.ts';

export interface Measured {
  readonly goodput: number;
  readonly wasted: number;
  readonly lightP99Ms: number;
  readonly p99Ms: number;
  readonly share: number;
  readonly turnedAway: number;
  readonly politeTurnedAway: number;
  readonly lasting: number;
  readonly dashboardToOneGate: number;
  readonly earlySends: number;
  readonly isLoneServed: boolean;
}

export function measure({ scenario, floors }: Row, seed: number): Measured {
  const figures = simulate({ ...scenario, seed });
  const callers = [...figures.callers.values()];
  const large = callers.filter(({ entitled }) => entitled >= 20);
  const light = ['dashboard', 'polite'].map((name) => figures.callers.get(name)?.p99 ?? 0);
  const accepted = (from: number, to: number): number =>
    figures.perSecond.slice(from, to).reduce((sum, count) => sum + count, 0);
  const one = floors.dashboardToOneGate === undefined ? figures : simulate({ ...scenario, seed, gates: 1 });
  return {
    goodput: figures.goodput,
    wasted: figures.wasted,
    lightP99Ms: Math.max(...light),
    p99Ms: Math.max(...callers.map(({ p99 }) => p99)),
    share: Math.min(...large.map(({ done, entitled }) => done / entitled)),
    turnedAway: figures.turnedAway,
    politeTurnedAway: figures.callers.get('polite')?.refused ?? 0,
    lasting: accepted(-60, scenario.seconds) / accepted(60, 120),
    dashboardToOneGate: dashboard(figures) / dashboard(one),
    earlySends: figures.earlySends,
    isLoneServed: figures.isLoneServed,
  };
}

function dashboard({ callers }: Figures): number {
  return callers.get('dashboard')?.done ?? 0;
}
