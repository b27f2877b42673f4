/** What must hold of the bytes that one program sent to another, whatever was tried. */
import { type StandIn, standInKey } from '../../../test/support/stand-in/stand-in.ts';
import type { Link } from './recorder.ts';
import { readResponses, readStrictly } from './strict-parser.ts';

/** The reads that are asked for; each has an id in its query. */
export const reads = '/api/analytics/accounts/';

/** What is wrong, by the id of the message; `-1` where no id is known. */
export type Faults = Map<number, string>;

/** The path and query of a target in absolute form too. */
export const originForm = (target: string): string => target.replace(/^https?:\/\/[^/?#]*/i, '');
/** The id of a message, or -1. */
export const idIn = (text: string): number => Number(/[?&]n=(\d+)/.exec(text)?.[1] ?? -1);

/** How a read is told from others: by its whole target, or only by its id where a server writes targets anew. */
type Identify = (target: string) => string;

/** For servers that write targets anew. */
export const idAsText: Identify = (target) => String(idIn(target));

/** Compares the requests that a strict reader finds on a connection with those that were answered there. */
export function judgeLink(link: Link, faults: Faults, identify: Identify): void {
  const { requests, end, reason } = readStrictly(link.sent());
  const methods = requests.map(({ method }) => method);
  const answers = readResponses(link.answered(), methods);
  for (const [at, { status, body }] of answers.entries()) {
    const request = requests[at];
    if (request === undefined) {
      // What is no request to a strict reader is refused, once.
      if (at > requests.length || end === 'whole' || status < 400) {
        faults.set(
          idIn(body),
          `${status} to no request (${reason ?? end}) behind ${JSON.stringify(requests.at(-1))}`,
        );
      }
    } else if (status === 200 && methods[at] !== 'HEAD') {
      // The gateway answers its own pages too: those are the answer to no read.
      const isRead = originForm(request.target).startsWith(reads);
      const answered = parse(body)?.target;
      if ((answered && identify(answered)) !== (isRead ? identify(request.target) : undefined)) {
        faults.set(idIn(request.target), `${request.target} was read as ${body.slice(0, 100)}`);
      }
    }
  }
}

function parse(text: string): { readonly target?: string } | undefined {
  try {
    return JSON.parse(text) as { target?: string };
  } catch {
    return undefined;
  }
}

/** What arrived up there more often than a strict reader of what was sent has it, or not as a read of ours. */
export function judgeUpstream(
  { requests }: StandIn,
  links: readonly Link[],
  faults: Faults,
  identify: Identify,
): void {
  const left = new Map<string, number>();
  const count = (target: string, by: number): number => {
    const sum = (left.get(identify(target)) ?? 0) + by;
    left.set(identify(target), sum);
    return sum;
  };
  for (const link of links) for (const { target } of readStrictly(link.sent()).requests) count(target, 1);
  for (const { target, method, key, rawHeaders } of requests) {
    const keys = rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === 'x-api-key');
    if (count(target, -1) < 0) faults.set(idIn(target), `${target} arrived upstream and was not sent`);
    if (!['GET', 'HEAD'].includes(method) || key !== standInKey || keys.length !== 1) {
      faults.set(idIn(target), `${method} ${target} arrived upstream with ${keys.length} keys`);
    }
  }
}
