/** What a run of the fuzzer says: a line, and for each finding how to see it again. Pure: no `this`, no I/O, no clock. */
import type { FuzzResult, Violation } from './run.ts';

const mostCharacters = 3_000;

export function reportOf(seed: number, { cases, replies, violations }: FuzzResult): string {
  const statuses = [...replies].sort().map(([status, count]) => `${status} × ${count}`);
  const summary = `${cases} cases, ${violations.length} findings; replies: ${statuses.join(', ')}\n`;
  return summary + violations.map((violation) => findingOf(seed, violation)).join('');
}

function findingOf(seed: number, { number, what, request, answer, came }: Violation): string {
  return [
    `\n--seed ${seed} --only ${number}: ${what}`,
    `  request  ${shown(request)}`,
    ...(answer === undefined ? [] : [`  answer   ${shown(answer)}`]),
    `  came     ${shown(came)}\n`,
  ].join('\n');
}

/** One character for each byte, escaped as in JSON; long runs of the same one are counted. */
function shown(bytes: Buffer): string {
  const text = bytes
    .toString('latin1')
    .replaceAll(/(.)\1{40,}/gs, (run, one: string) => `<${run.length} × ${one}>`);
  const rest = text.length > mostCharacters ? ` and ${text.length - mostCharacters} characters` : '';
  return JSON.stringify(text.slice(0, mostCharacters)) + rest;
}
