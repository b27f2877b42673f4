/** Control groups with a limit of memory or of processor time, as a container has them (cgroups(7), both versions). */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface ControlGroup {
  /** Put before a program and its arguments, it starts the program in the group. */
  readonly command: readonly string[];
  remove(): void;
}

export interface MemoryGroup extends ControlGroup {
  /** The most that the group has held, in bytes. */
  peakBytes(): number;
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
  // The first that can be made: below version 1 the folder of version 2 is an ordinary one.
  for (const version of versions) {
    const group = makeOf(version, name, limitBytes);
    if (group !== undefined) return group;
  }
  return undefined;
}

/**
 * @param share of one processor, such as 0.3
 * @returns `undefined` where this process may make no such group
 */
export function makeProcessorGroup(name: string, share: number): ControlGroup | undefined {
  const periodUs = 10_000;
  const quotaUs = String(Math.round(share * periodUs));
  return (
    makeGroup('/sys/fs/cgroup/cpu', name, {
      'cpu.cfs_period_us': String(periodUs),
      'cpu.cfs_quota_us': quotaUs,
    }) ?? makeGroup('/sys/fs/cgroup', name, { 'cpu.max': `${quotaUs} ${periodUs}` })
  );
}

function makeOf(version: Version, name: string, limitBytes: number): MemoryGroup | undefined {
  const group = makeGroup(version.folder, name, { [version.limitFile]: String(limitBytes) });
  if (group === undefined) return undefined;
  try {
    writeFileSync(
      join(group.folder, version.swapFile),
      version.swapFile.endsWith('.max') ? '0' : String(limitBytes),
    );
  } catch {
    // A kernel that does not count swap.
  }
  return { ...group, peakBytes: () => Number(readFileSync(join(group.folder, version.peakFile), 'utf8')) };
}

/** @returns `undefined` where this process may make no such group */
export function makeGroup(
  parent: string,
  name: string,
  limits: Readonly<Record<string, string>>,
): (ControlGroup & { readonly folder: string }) | undefined {
  const folder = join(parent, `${name}-${process.pid}`);
  const remove = (): void => {
    if (existsSync(folder)) rmdirSync(folder);
  };
  try {
    mkdirSync(folder);
    for (const [file, limit] of Object.entries(limits)) writeFileSync(join(folder, file), limit);
  } catch {
    remove();
    return undefined;
  }
  const command = ['/bin/sh', '-c', 'echo $$ >"$0" && exec "$@"', join(folder, 'cgroup.procs')];
  return { folder, command, remove };
}
