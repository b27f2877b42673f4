/** What grows: samples of a process over time, and the slope of the line that fits them best. */
import { readdirSync, readFileSync } from 'node:fs';

export interface Sample {
  /** Since the first one. */
  readonly minutes: number;
  readonly residentMiB: number;
  /** Without those of connections to the upstream: the pool, which has a bound of its own, holds them for a minute. */
  readonly descriptors: number;
}

export interface Sampling {
  readonly samples: readonly Sample[];
  end(): void;
}

const everyMs = 1_000;
const windowMinutes = 1 / 6;

/**
 * Reads a process's resident memory and open descriptors once a second (Linux).
 *
 * @param upstreamPort where only this process connects to
 */
export function sampleProcess(pid: number, upstreamPort: number): Sampling {
  const samples: Sample[] = [];
  const startMs = performance.now();
  const timer = setInterval(() => {
    const resident = residentMiB(pid);
    if (resident === undefined) return;
    const minutes = (performance.now() - startMs) / 60_000;
    const open = readdirSync(`/proc/${pid}/fd`).length;
    samples.push({ minutes, residentMiB: resident, descriptors: open - connectionsTo(pid, upstreamPort) });
  }, everyMs);
  return { samples, end: () => clearInterval(timer) };
}

/** Sockets connected to a port, as proc(5) lists them: those that a process still holds have an inode. */
function connectionsTo(pid: number, port: number): number {
  const remote = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = readFileSync(`/proc/${pid}/net/tcp`, 'utf8').trim().split('\n').slice(1);
  return rows.filter((row) => {
    const fields = row.trim().split(/\s+/);
    return fields[2]?.endsWith(remote) === true && fields[9] !== '0';
  }).length;
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
