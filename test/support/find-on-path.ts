import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** A program on the path, those of `node_modules` left out. */
export function findOnPath(name: string): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((one) => !one.includes('node_modules'));
  return folders
    .map((one) => join(one, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
