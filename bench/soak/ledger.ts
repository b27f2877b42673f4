/**
 * One account for each request that was sent: how it ended for its caller, and which lines of the log are about it.
 * The request's number is its `X-Request-ID`, so the two sides are compared one by one and not only in sum.
 */

export interface Ledger {
  /** Opens an account. Returns the request's number. */
  send(): number;
  answer(number: number, status: number): void;
  /** The caller left on purpose, before its answer was whole. */
  leave(number: number): void;
  /** A line of the gateway's log, as it came. */
  read(line: string): void;
  /** All that does not add up. */
  faults(): string[];
  readonly totals: Totals;
}

export interface Totals {
  sent: number;
  answered: number;
  left: number;
  /** Lines about requests. */
  lines: number;
  /** Of these, those of callers that had left. */
  aborted: number;
  readonly byStatus: Map<number, number>;
  /** What the gateway said of itself at its end. */
  stopped: { started: number; finished: number; aborted: number } | undefined;
}

const idPrefix = 'soak-';
const callerLeft = 499;
/** Enough to see what is wrong. */
const maxFaults = 20;

export function requestId(number: number): string {
  return `${idPrefix}${number}`;
}

interface Account {
  /** What the caller got; 0 while it waits, -1 where it has left. */
  ended: number;
  lines: number;
  /** The last line's status. */
  logged: number;
}

export function openLedger(): Ledger {
  const accounts: Account[] = [];
  const found: string[] = [];
  const totals: Totals = {
    sent: 0,
    answered: 0,
    left: 0,
    lines: 0,
    aborted: 0,
    byStatus: new Map(),
    stopped: undefined,
  };

  function end(number: number, status: number): void {
    const account = accounts[number];
    if (account === undefined || account.ended !== 0) found.push(`${requestId(number)} ended twice`);
    else account.ended = status;
  }

  return {
    totals,
    send() {
      totals.sent += 1;
      return accounts.push({ ended: 0, lines: 0, logged: 0 }) - 1;
    },
    answer(number, status) {
      totals.answered += 1;
      totals.byStatus.set(status, (totals.byStatus.get(status) ?? 0) + 1);
      end(number, status);
    },
    leave(number) {
      totals.left += 1;
      end(number, -1);
    },
    read(line) {
      const facts = parsed(line);
      if (facts === undefined) {
        found.push(`a line that is no JSON: ${line.slice(0, 200)}`);
        return;
      }
      if (isTrouble(facts)) found.push(line.slice(0, 300));
      if (facts['msg'] === 'stopped') totals.stopped = facts as unknown as NonNullable<Totals['stopped']>;
      if (facts['msg'] !== 'request') return;
      totals.lines += 1;
      if (facts['status'] === callerLeft) totals.aborted += 1;
      const account = accounts[Number(String(facts['requestId']).slice(idPrefix.length))];
      if (account === undefined) {
        found.push(`a line about a request that was not sent: ${line.slice(0, 200)}`);
        return;
      }
      account.lines += 1;
      account.logged = Number(facts['status']);
    },
    faults() {
      return [...found, ...accounts.flatMap(faultsOf)].slice(0, maxFaults);
    },
  };
}

/** An answer with the key in it is one of the catalogue's faults; the gateway reports it as an error. */
function isTrouble({ level, kind }: Record<string, unknown>): boolean {
  return (level === 'error' && kind !== 'leak') || level === 'fatal';
}

/** Who has left may have left before the request was on the wire, or after it was answered. */
function faultsOf({ ended, lines, logged }: Account, number: number): string[] {
  const id = requestId(number);
  if (ended === 0) return [`${id} has no end`];
  if (ended === -1) return lines > 1 ? [`${id}: ${lines} lines`] : [];
  if (lines !== 1) return [`${id}: answered with ${ended}, ${lines} lines`];
  return logged === ended ? [] : [`${id}: answered with ${ended}, logged ${logged}`];
}

function parsed(line: string): Record<string, unknown> | undefined {
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
