/** `settings`: what can be set, from the one table. */
import { settings } from '../config.ts';

export function listSettings(): string {
  return Object.entries(settings)
    .map(([name, { default: value, required, meaning }]) => {
      const state = required
        ? 'required'
        : value === undefined || value === ''
          ? 'no default'
          : `default ${value}`;
      return `${name}  (${state})\n    ${meaning}\n`;
    })
    .join('');
}
