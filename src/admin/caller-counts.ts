/** Counts the requests of each caller, by workspace: one look-up for each access line, and nothing is allocated. */
import type { AccessLine } from '../edge/access-log.ts';

export interface CallerCount {
  /** Null for the unnamed workspace, and where none was known. */
  readonly workspace: string | null;
  readonly caller: string;
  /** By the first digit of the status: index 2 holds the 2xx. */
  readonly classes: readonly number[];
  /** Requests that got no answer because of the caller itself or for want of a turn at the upstream, by problem. */
  readonly refused: Readonly<Record<string, number>>;
  /** Requests that passed because the callers file does not enforce its rules, by the problem they were spared. */
  readonly spared: Readonly<Record<string, number>>;
  /** Time that its requests waited at the gate and between attempts, in ms. */
  readonly waitedMs: number;
}

/** A caller's own requests since midnight UTC. */
export interface CallerDay {
  readonly requests: number;
  /** Answered from memory, without waiting for the upstream. */
  readonly fromMemory: number;
  /** For which an attempt was sent upstream. */
  readonly sentUp: number;
  /** Refused because of the caller itself: not granted, or over its limit. */
  readonly refused: number;
}

interface Cell {
  readonly classes: Float64Array;
  readonly refused: Map<string, number>;
  readonly spared: Map<string, number>;
  readonly waitedMs: Float64Array;
  /** Requests answered from memory, sent up, and refused because of the caller. */
  readonly sums: Float64Array;
  atMidnight: CallerDay;
}

/** So many callers are counted by name, the rest together. No caller of a file can have the name of the rest. */
export const maxCallers = 200;
export const otherCallers = '(other)';
/** One for each workspace that a caller calls. */
const maxCells = 2_000;
const dayMs = 86_400_000;
const emptyDay: CallerDay = { requests: 0, fromMemory: 0, sentUp: 0, refused: 0 };

export class CallerCounts {
  /** By workspace, then by name. */
  readonly #cells = new Map<string | undefined, Map<string, Cell>>();
  readonly #names = new Set<string>();
  #size = 0;
  #midnight: NodeJS.Timeout | undefined = undefined;

  count(line: AccessLine, isFromMemory: boolean, problem: string | undefined): void {
    if (line.caller === undefined) return;
    const cell = this.#cellOf(line.workspace, line.caller);
    (cell.classes[Math.min(5, Math.trunc(line.status / 100))] as number) += 1;
    if (isFromMemory) (cell.sums[0] as number) += 1;
    else if (line.attempts > 0) (cell.sums[1] as number) += 1;
    if (line.waitedMs > 0) (cell.waitedMs[0] as number) += line.waitedMs;
    if (line.would !== undefined) for (const code of line.would.split(' ')) increment(cell.spared, code);
    if (problem === undefined) return;
    const isOwn = problem.startsWith('caller-');
    if (isOwn) (cell.sums[2] as number) += 1;
    if (isOwn || problem === 'upstream-rate-limited' || problem === 'overloaded')
      increment(cell.refused, problem);
  }

  /** A caller's requests since midnight UTC; `undefined` where it is counted among the others. */
  today(caller: string): CallerDay | undefined {
    if (!this.#names.has(caller)) return this.#names.size < maxCallers ? emptyDay : undefined;
    const own = [...this.#cells.values()].flatMap((cells) => cells.get(caller) ?? []);
    const sum = (name: keyof CallerDay): number =>
      own.reduce((total, cell) => total + dayOf(cell)[name] - cell.atMidnight[name], 0);
    return {
      requests: sum('requests'),
      fromMemory: sum('fromMemory'),
      sentUp: sum('sentUp'),
      refused: sum('refused'),
    };
  }

  snapshot(): readonly CallerCount[] {
    return [...this.#cells].flatMap(([workspace = null, cells]) =>
      [...cells].map(([caller, { classes, refused, spared, waitedMs }]) => ({
        workspace,
        caller,
        classes: [...classes],
        refused: Object.fromEntries(refused),
        spared: Object.fromEntries(spared),
        waitedMs: waitedMs[0] as number,
      })),
    );
  }

  #cellOf(workspace: string | undefined, name: string): Cell {
    let cells = this.#cells.get(workspace);
    const known = cells?.get(name);
    if (known !== undefined) return known;
    if (cells === undefined) {
      cells = new Map();
      this.#cells.set(workspace, cells);
    }
    const isNamed = this.#names.has(name) || this.#names.size < maxCallers;
    const shown = isNamed && this.#size < maxCells ? name : otherCallers;
    const cell = cells.get(shown) ?? newCell();
    cells.set(shown, cell);
    if (shown === name) {
      this.#names.add(name);
      this.#size += 1;
    }
    this.#midnight ??= this.#atMidnight();
    return cell;
  }

  /** By a timer, so that no request has to look at the date. */
  #atMidnight(): NodeJS.Timeout {
    const onMidnight = (): void => {
      for (const cells of this.#cells.values())
        for (const cell of cells.values()) cell.atMidnight = dayOf(cell);
      this.#midnight = this.#atMidnight();
    };
    return setTimeout(onMidnight, dayMs - (Date.now() % dayMs)).unref();
  }
}

/** Of each caller over all workspaces. */
export function sumByCaller(counts: readonly CallerCount[]): readonly CallerCount[] {
  return [...Map.groupBy(counts, ({ caller }) => caller)].map(([caller, own]) => {
    const classes = [0, 0, 0, 0, 0, 0];
    const [refused, spared] = [new Map<string, number>(), new Map<string, number>()];
    let waitedMs = 0;
    for (const one of own) {
      for (const [first, count] of one.classes.entries()) classes[first] = (classes[first] ?? 0) + count;
      for (const [code, count] of Object.entries(one.refused)) increment(refused, code, count);
      for (const [code, count] of Object.entries(one.spared)) increment(spared, code, count);
      waitedMs += one.waitedMs;
    }
    const codes = { refused: Object.fromEntries(refused), spared: Object.fromEntries(spared) };
    return { workspace: null, caller, classes, ...codes, waitedMs };
  });
}

function newCell(): Cell {
  return {
    classes: new Float64Array(6),
    refused: new Map(),
    spared: new Map(),
    waitedMs: new Float64Array(1),
    sums: new Float64Array(3),
    atMidnight: emptyDay,
  };
}

/** Since the start. */
function dayOf({ classes, sums: [fromMemory = 0, sentUp = 0, refused = 0] }: Cell): CallerDay {
  return { requests: classes.reduce((sum, count) => sum + count, 0), fromMemory, sentUp, refused };
}

function increment(counts: Map<string, number>, name: string, by = 1): void {
  counts.set(name, (counts.get(name) ?? 0) + by);
}
