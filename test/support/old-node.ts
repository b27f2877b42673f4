/** The machine's own programs, and its Node where the gateway needs a newer one: what readers of the documents often have. */
import { execFileSync } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { root } from './documents.ts';

/** A Node of the machine's own that `engines` in package.json rules out. */
export function findOldNode(): string | undefined {
  const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    engines: { node: string };
  };
  const [leastMajor = 0] = engines.node.replace('>=', '').split('.').map(Number);
  const node = findOnPath('node');
  if (node === undefined) return undefined;
  const version = execFileSync(node, ['--version'], { encoding: 'utf8' });
  return Number.parseInt(version.slice(1), 10) < leastMajor ? node : undefined;
}

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
