/** `settings`: what can be set, from the one table. */
import { describedSettings } from '../config-settings.ts';

/** @param json one array of objects, for programs */
export function listSettings({ json }: { json: boolean }): string {
  const rows = Object.entries(describedSettings).map(([name, { default: value, required, meaning }]) => ({
    name,
    required,
    default: value || null,
    meaning,
  }));
  if (json) return `${JSON.stringify(rows, null, 2)}\n`;
  return rows
    .map(({ name, required, default: value, meaning }) => {
      const state = required ? 'required' : value === null ? 'no default' : `default ${value}`;
      return `${name}  (${state})\n    ${meaning}\n`;
    })
    .join('');
}
