/** Variables of the environment that look like settings and are none: each is named, never with its value. Pure. */

import { describedSettings, settings } from './settings.ts';
import { nearestWord } from './spelling.ts';
import {
  type Environment,
  listedWorkspaces,
  unlistedWorkspace,
  workspaceOfVariable,
  workspaceVariables,
} from './workspaces.ts';

const ownPrefixes =
  /^(?:UPSTREAM_|REQUEST_|ADMIN_|ALLOWED_|CALLER|CORS_|CACHE_|RETRY_|GATE_|FORWARD_|SHUTDOWN_|SHARED_|TLS_|WORKSPACES)/;

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
