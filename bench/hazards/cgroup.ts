/** A control group with a limit of memory, as a container has one (cgroups(7), both versions). */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface MemoryGroup {
  /** Put before a program and its arguments, it starts the program in the group. */
  readonly command: readonly string[];
  /** The most that the group has held, in bytes. */
  peakBytes(): number;
  remove(): void;
}

interface Version {
  readonly folder: string;
  readonly limitFile: string;
  readonly swapFile: string;
  readonly peakFile: string;
}

const versions: readonly Version[] = [
  {
    folder: '/sys/fs/cgroup/memory',
    limitFile: 'memory.limit_in_bytes',
    swapFile: 'memory.memsw.limit_in_bytes',
    peakFile: 'memory.max_usage_in_bytes',
  },
  {
    folder: '/sys/fs/cgroup',
    limitFile: 'memory.max',
    swapFile: 'memory.swap.max',
    peakFile: 'memory.peak',
  },
];

/** @returns `undefined` where this process may make no such group: it takes root, and a system that has them */
export function makeMemoryGroup(name: string, limitBytes: number): MemoryGroup | undefined {
  const made = versions.map((version) => makeOf(version, name, limitBytes));
  return made.find((group) => group !== undefined);
}

function makeOf(version: Version, name: string, limitBytes: number): MemoryGroup | undefined {
  const folder = join(version.folder, `${name}-${process.pid}`);
  const remove = (): void => {
    if (existsSync(folder)) rmdirSync(folder);
  };
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, version.limitFile), String(limitBytes));
  } catch {
    remove();
    return undefined;
  }
  try {
    writeFileSync(
      join(folder, version.swapFile),
      version.swapFile.endsWith('.max') ? '0' : String(limitBytes),
    );
  } catch {
    // A kernel that does not count swap.
  }
  return {
    command: ['/bin/sh', '-c', 'echo $$ >"$0" && exec "$@"', join(folder, 'cgroup.procs')],
    peakBytes: () => Number(readFileSync(join(folder, version.peakFile), 'utf8')),
    remove,
  };
}
