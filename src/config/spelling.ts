/** Which known word a misspelled one may stand for. Pure: no `this`, no I/O, no clock. */

/** Edits between two words: insertions, deletions, replacements, swaps of neighbours (optimal string alignment). */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      }
      row.push(least);
    }
    before = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

/** The first of the nearest known words that is at most so many edits away, whatever its case. */
export function nearestWord(word: string, known: Iterable<string>, maxEdits: number): string | undefined {
  let best: string | undefined;
  let least = maxEdits + 1;
  for (const candidate of known) {
    if (Math.abs(candidate.length - word.length) >= least) continue;
    const edits = distance(word.toLowerCase(), candidate.toLowerCase());
    if (edits < least) {
      least = edits;
      best = candidate;
    }
  }
  return best;
}

/** ` (did you mean "…"?)` with the nearest of the known words, or nothing where none is near. */
export function didYouMean(word: string, known: Iterable<string>): string {
  if (word.length > 80) return '';
  const nearest = nearestWord(word, known, Math.max(2, Math.floor(word.length / 4)));
  return nearest === undefined ? '' : ` (did you mean "${nearest}"?)`;
}

const mostListed = 20;

/** The same, followed by the known words themselves: the nearest is not always the one that is meant. */
export function nearestOfAll(word: string, known: Iterable<string>): string {
  const all = [...new Set(known)];
  const more = all.length > mostListed ? ` and ${all.length - mostListed} more` : '';
  const listed =
    all.length === 0
      ? ''
      : `: there ${all.length === 1 ? 'is' : 'are'} ${all.slice(0, mostListed).join(', ')}${more}`;
  return `${didYouMean(word, all)}${listed}`;
}
