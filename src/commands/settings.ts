/** `settings`: what can be set, from the one table. */
import { settingMeant } from '../config/misspellings.ts';
import { describedSettings } from '../config/settings.ts';

/**
 * The settings of these names, or all of them where none is given, as lines.
 *
 * @param names in any case, with `-` or `_`
 * @param json one array of objects, for programs
 */
export function listSettings({
  names,
  json,
}: {
  readonly names: readonly string[];
  readonly json: boolean;
}): { readonly text: string } | { readonly problem: string } {
  const all = Object.entries(describedSettings).map(([name, { default: value, required, meaning }]) => ({
    name,
    required,
    default: value || null,
    meaning,
  }));
  const asked = names.map((name) => name.toUpperCase().replaceAll('-', '_'));
  const rows = asked.length === 0 ? all : all.filter((row) => asked.some((name) => isNamed(row.name, name)));
  const unknown = asked.find((name) => !all.some((row) => isNamed(row.name, name)));
  if (unknown !== undefined) {
    const meant = settingMeant(unknown);
    const hint = meant === undefined ? '' : ` (did you mean ${meant}?)`;
    return {
      problem: `${JSON.stringify(unknown.slice(0, 80))} is not a setting${hint}; "analytics-gateway settings" lists all`,
    };
  }
  if (json) return { text: `${JSON.stringify(rows, null, 2)}\n` };
  const lines = rows.map(({ name, required, default: value, meaning }) => {
    const state = required ? 'required' : value === null ? 'no default' : `default ${value}`;
    return `${name}  (${state})\n    ${meaning}\n`;
  });
  return { text: lines.join('') };
}

/** A workspace's own setting is meant by any workspace's name. */
function isNamed(row: string, asked: string): boolean {
  const [before, behind] = row.split('<NAME>');
  return behind === undefined ? row === asked : asked.startsWith(before ?? row) && asked !== before;
}
