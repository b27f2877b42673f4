/** What grows: samples of a process over time, and the slope of the line that fits them best. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface Sample {
  /** Since the first one. */
  readonly minutes: number;
  readonly residentMiB: number;
  /**
   * Without established connections: those are held by their other end too, which closes them when it likes. One that
   * the other end has closed and the process has not is counted.
   */
  readonly descriptors: number;
}

export interface Sampling {
  readonly samples: readonly Sample[];
  end(): void;
}

const everyMs = 1_000;
const windowMinutes = 1 / 6;

/** Reads a process's resident memory and open descriptors once a second (Linux). */
export function sampleProcess(pid: number): Sampling {
  const samples: Sample[] = [];
  const startMs = performance.now();
  const timer = setInterval(() => {
    const resident = residentMiB(pid);
    if (resident === undefined) return;
    const minutes = (performance.now() - startMs) / 60_000;
    samples.push({ minutes, residentMiB: resident, descriptors: descriptorsOf(pid) });
  }, everyMs);
  return { samples, end: () => clearInterval(timer) };
}

/** Open descriptors of a process, but for its established connections (proc(5): state 01, and the socket's inode). */
export function descriptorsOf(pid: number): number {
  const established = new Set<string>();
  for (const file of ['tcp', 'tcp6']) {
    for (const row of readFileSync(`/proc/${pid}/net/${file}`, 'utf8').split('\n').slice(1)) {
      const [, , , state, , , , , , inode] = row.trim().split(/\s+/);
      if (state === '01' && inode !== undefined) established.add(`socket:[${inode}]`);
    }
  }
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((name) => !established.has(linkOf(`${folder}/${name}`))).length;
}

/** What a descriptor leads to; nothing where it was closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** `undefined` where the process has ended. */
function residentMiB(pid: number): number | undefined {
  try {
    const kib = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kib === undefined ? undefined : Number(kib) / 1_024;
  } catch {
    return undefined;
  }
}

/** The lowest value of each ten seconds: a leak raises it, a burst of connections or garbage does not. */
export function floorsOf(
  samples: readonly Sample[],
  valueAt: (sample: Sample) => number,
): readonly (readonly [minutes: number, lowest: number])[] {
  const lowest = new Map<number, number>();
  for (const sample of samples) {
    const window = Math.floor(sample.minutes / windowMinutes);
    lowest.set(window, Math.min(lowest.get(window) ?? Number.POSITIVE_INFINITY, valueAt(sample)));
  }
  return [...lowest].map(([window, value]) => [window * windowMinutes, value]);
}

/** Least squares: how much `y` changes for each unit of `x`; 0 for fewer than two points. */
export function slopeOf(points: readonly (readonly [x: number, y: number])[]): number {
  const count = points.length;
  if (count < 2) return 0;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / count;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / count;
  let covariance = 0;
  let variance = 0;
  for (const [x, y] of points) {
    covariance += (x - meanX) * (y - meanY);
    variance += (x - meanX) ** 2;
  }
  return variance === 0 ? 0 : covariance / variance;
}
