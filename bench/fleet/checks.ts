/** What several gateways must reach, as against one. Pure. */
import type { Figures } from '../storm/figures.ts';

export interface Check {
  readonly text: string;
  readonly isMet: boolean;
}

export interface StormBounds {
  readonly goodput: number;
  /** 429s as a share of all attempts; left out where they are not judged. */
  readonly wasted?: number;
  /** What the dashboard and the script get, as a share of what one gateway gives them. */
  readonly share?: number;
  readonly p99Ms?: number;
}

const light = ['dashboard', 'polite'];

/** @param one the figures of a single gateway */
export function judgeStorm(name: string, figures: Figures, one: Figures, bounds: StormBounds): Check[] {
  const { goodput, wasted, share, p99Ms } = bounds;
  const failed = figures.callers.reduce((sum, caller) => sum + caller.failed, 0);
  const checks = [
    atLeast(`${name}: goodput`, figures.goodput, goodput),
    { text: `${name}: ${failed} answers but 200 and 429`, isMet: failed === 0 },
  ];
  if (wasted !== undefined) checks.push(atMost(`${name}: wasted`, figures.wasted, wasted));
  for (const caller of light) {
    const [here, alone] = [figures, one].map(({ callers }) => callers.find((each) => each.name === caller));
    if (here === undefined || alone === undefined) continue;
    const part = here.answered / alone.answered;
    if (share !== undefined)
      checks.push(atLeast(`${name}: ${caller}, of what one gateway gives it`, part, share));
    if (p99Ms !== undefined) checks.push(atMost(`${name}: ${caller}, p99 in ms`, here.p99Ms, p99Ms));
  }
  return checks;
}

export function atLeast(text: string, value: number, least: number): Check {
  return { text: `${text} ${shown(value)} (at least ${shown(least)})`, isMet: value >= least };
}

export function atMost(text: string, value: number, most: number): Check {
  return { text: `${text} ${shown(value)} (at most ${shown(most)})`, isMet: value <= most };
}

function shown(value: number): string {
  return value >= 10 ? value.toFixed(0) : String(Number(value.toFixed(3)));
}
