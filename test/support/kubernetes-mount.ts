/** A secret as the kubelet lays it out: `key → ..data/key`, `..data → ..<version>`, replaced by one rename. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { AtEnd } from './gateway.ts';

export interface KubernetesMount {
  /** The path to configure. */
  readonly path: string;
  /** Puts another value in place, all of it between two turns of the event loop. */
  swap(value: string | Buffer): void;
  /** Takes everything away, as an unmount does. */
  remove(): void;
}

/** Goes with the test. */
export function mountSecret(value: string | Buffer, atEnd: AtEnd = onTestFinished): KubernetesMount {
  const directory = mkdtempSync(join(tmpdir(), 'key-mount-'));
  atEnd(() => rmSync(directory, { recursive: true, force: true }));
  let version = 0;
  const at = (name: string): string => join(directory, name);
  const swap = (next: string | Buffer): void => {
    version++;
    mkdirSync(at(`..${version}`), { recursive: true });
    writeFileSync(at(`..${version}/key`), next);
    symlinkSync(`..${version}`, at('..data_tmp'));
    renameSync(at('..data_tmp'), at('..data'));
    rmSync(at(`..${version - 1}`), { recursive: true, force: true });
  };
  swap(value);
  symlinkSync('..data/key', at('key'));
  return { path: at('key'), swap, remove: () => rmSync(at('..data')) };
}
