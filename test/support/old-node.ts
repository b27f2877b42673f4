/** The machine's own Node where the gateway needs a newer one: what readers of the documents often have. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './documents.ts';
import { findOnPath } from './find-on-path.ts';

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
