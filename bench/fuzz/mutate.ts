/** Changes to bytes that know nothing of what the bytes mean. */
import { below, pick, type Random } from '../../test/support/random.ts';

/** Text as bytes, one for each character: messages may hold bytes that are no ASCII. */
export function bytesOf(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

const mostChanges = 4;
const longestRange = 40;
/** Below the limits of a target and of a head, and as much as comes in one read. */
const runBytes = [8 * 1_024, 16 * 1_024, 64 * 1_024];
/** What makes an expression begin again and again. */
const runs = ['\t', ' ', 'a', 'eyJ', '%25', '"', ',', '[', '&amp;'];

type Change = (text: string, random: Random, words: readonly string[]) => string;

const changes: readonly Change[] = [
  function insertWord(text, random, words) {
    const at = below(random, text.length + 1);
    return text.slice(0, at) + pick(random, words) + text.slice(at);
  },
  function replaceRange(text, random, words) {
    const at = below(random, text.length + 1);
    return text.slice(0, at) + pick(random, words) + text.slice(at + below(random, longestRange));
  },
  function removeRange(text, random) {
    const at = below(random, text.length + 1);
    return text.slice(0, at) + text.slice(at + 1 + below(random, longestRange));
  },
  function repeatRange(text, random) {
    const at = below(random, text.length + 1);
    const range = text.slice(at, at + below(random, longestRange));
    return text.slice(0, at) + range.repeat(1 + below(random, 4)) + text.slice(at);
  },
  function flipBit(text, random) {
    const at = below(random, text.length);
    const flipped = (text.charCodeAt(at) || 0) ^ (1 << below(random, 8));
    return text.slice(0, at) + String.fromCharCode(flipped & 0xff) + text.slice(at + 1);
  },
  function repeatLine(text, random) {
    const lines = text.split('\r\n');
    const at = below(random, lines.length);
    return lines.toSpliced(at, 0, ...Array<string>(1 + below(random, 3)).fill(lines[at] ?? '')).join('\r\n');
  },
  function swapLines(text, random) {
    const lines = text.split('\r\n');
    const [one, other] = [below(random, lines.length), below(random, lines.length)];
    return lines
      .with(one, lines[other] ?? '')
      .with(other, lines[one] ?? '')
      .join('\r\n');
  },
  function insertRun(text, random) {
    const at = below(random, text.length + 1);
    const run = pick(random, runs);
    const bytes = pick(random, runBytes) - below(random, 2_048);
    return text.slice(0, at) + run.repeat(Math.floor(bytes / run.length)) + text.slice(at);
  },
  function cutEnd(text, random) {
    return text.slice(0, below(random, text.length + 1));
  },
];

/** @param words what may be put in: pieces that mean something to a parser */
export function mutate(text: string, random: Random, words: readonly string[]): string {
  let changed = text;
  for (let left = 1 + below(random, mostChanges); left > 0; left--) {
    changed = pick(random, changes)(changed, random, words);
  }
  return changed;
}

/** Cuts a message into up to four pieces, each to be written by itself. */
export function piecesOf(bytes: Buffer, random: Random): Buffer[] {
  const cuts = Array.from({ length: below(random, 4) }, () => below(random, bytes.length + 1)).sort(
    (one, other) => one - other,
  );
  return [...cuts, bytes.length].map((end, at) => bytes.subarray(at === 0 ? 0 : cuts[at - 1], end));
}
