/**
 * Misspelled words: variables of the environment that look like settings and are none, each named and never with its value,
 * and which known word a word may stand for. Pure: no I/O, no clock.
 */

import { describedSettings, settings } from './settings.ts';
import type { Environment } from './values.ts';
import { listedWorkspaces, workspaceOfVariable, workspaceVariables } from './workspaces.ts';

const ownPrefixes =
  /^(?:UPSTREAM_|REQUEST_|ADMIN_|ALLOWED_|CALLER|CORS_|CACHE_|RETRY_|GATE_|FORWARD_|SHUTDOWN_|SHARED_|PROXY_|REUSE_|TLS_|TRUSTED_|PUBLIC_|OPENAPI_|WORKSPACES)/;

/** Names that look like a slip of the pen: ours by prefix, unknown, one or two letters from a known one. */
export function misspelledSettings(environment: Environment): string[] {
  const known = knownNames(environment);
  const unlistedToo = new Set(unlistedNames(environment));
  return unknownNames(environment).flatMap((name) => {
    const meant = unlistedToo.has(name) ? undefined : nearestWord(name, known, 2);
    return meant === undefined ? [] : [`${name} is not a setting; did you mean ${meant}?`];
  });
}

/** Variables of workspaces that are not listed. */
export function unlistedSettings(environment: Environment): string[] {
  const names = listedWorkspaces(environment);
  return unlistedNames(environment).map((name) => unlistedWorkspace(name, names));
}

/** Without WORKSPACES they are names that have no effect. */
function unlistedNames(environment: Environment): string[] {
  if (listedWorkspaces(environment).length === 0) return [];
  return unknownNames(environment).filter((name) => workspaceOfVariable(name) !== undefined);
}

/** Every setting, those of the listed workspaces included. */
function knownNames(environment: Environment): string[] {
  return [...Object.keys(settings), ...workspaceVariables(listedWorkspaces(environment))];
}

/**
 * What is not a setting and looks as if it was meant to be one, however far from a known name: it begins with
 * `UPSTREAM_`. Other prefixes are other programs' as well.
 */
export function unknownSettings(environment: Environment): string[] {
  const known = knownNames(environment);
  const unlistedToo = new Set(unlistedNames(environment));
  return unknownNames(environment)
    .filter((name) => name.startsWith('UPSTREAM_') && !unlistedToo.has(name))
    .filter((name) => nearestWord(name, known, 2) === undefined)
    .map((name) => {
      if (workspaceOfVariable(name)) return unlistedWorkspace(name, []);
      const words = name.split('_');
      const meant = known.find((one) => words.every((word) => one.split('_').includes(word)));
      return `${name} is not a setting${meant === undefined ? '' : `; did you mean ${meant}?`}`;
    });
}

/** Ours by prefix, and neither a setting nor named by one. An empty setting of a workspace counts as not set. */
function unknownNames(environment: Environment): string[] {
  const known = new Set(knownNames(environment));
  const referred = new Set(
    [...known]
      .filter((name) => name.includes('_FROM'))
      .map((name) => environment[name]?.trim().replace(/^env:/, '')),
  );
  const isEmpty = (name: string): boolean => (environment[name]?.trim() ?? '') === '';
  return Object.keys(environment)
    .filter((name) => ownPrefixes.test(name) && !known.has(name) && !referred.has(name))
    .filter((name) => workspaceOfVariable(name) === undefined || !isEmpty(name));
}

/** The setting that an option such as `--port`, or another spelling, stands for; `undefined` where none is near. */
export function settingMeant(word: string): string | undefined {
  const name = word.toUpperCase().replaceAll('-', '_');
  // In a short name two letters are half of it.
  return nearestWord(name, Object.keys(describedSettings), name.length < 8 ? 1 : 2);
}

/** That a variable is for a workspace which is not listed. */
function unlistedWorkspace(variable: string, names: readonly string[]): string {
  const meant = nearestOfAll(workspaceOfVariable(variable) ?? '', names);
  return `${variable} is for a workspace that WORKSPACES does not list${meant}`;
}

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
