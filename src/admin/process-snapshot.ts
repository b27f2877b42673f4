/** Reads what Node and the system say of this process, when it is asked for. */
import { readdir, readFile } from 'node:fs/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { maxOpenFiles, readLimits } from '../edge/descriptor-limit.ts';
import type { ProcessSnapshot } from './sources.ts';

export async function readProcess(): Promise<ProcessSnapshot> {
  const [status, descriptors] = await Promise.all([
    readFile('/proc/self/status', 'latin1').catch(() => ''),
    readdir('/proc/self/fd').catch(() => undefined),
  ]);
  const { user, system } = process.cpuUsage();
  const { heapTotal, heapUsed, external } = process.memoryUsage();
  const activeResources = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    activeResources.set(kind, (activeResources.get(kind) ?? 0) + 1);
  }
  return {
    cpuUserSeconds: user / 1e6,
    cpuSystemSeconds: system / 1e6,
    virtualBytes: bytesIn(/^VmSize:\s+(\d+) kB/m.exec(status)),
    dataBytes: bytesIn(/^VmData:\s+(\d+) kB/m.exec(status)),
    // The folder itself is open while it is read.
    openDescriptors: descriptors && descriptors.length - 1,
    maxDescriptors: maxOpenFiles(readLimits()),
    heapTotalBytes: heapTotal,
    heapUsedBytes: heapUsed,
    externalBytes: external,
    heapSpaces: getHeapSpaceStatistics().map((one) => ({
      space: one.space_name.replace(/_space$/, ''),
      totalBytes: one.space_size,
      usedBytes: one.space_used_size,
      availableBytes: one.space_available_size,
    })),
    activeResources,
  };
}

function bytesIn(kibibytes: RegExpExecArray | null): number | undefined {
  return kibibytes === null ? undefined : Number(kibibytes[1]) * 1_024;
}
