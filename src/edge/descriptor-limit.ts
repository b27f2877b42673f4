/**
 * How many connections of callers the process's limit of open files leaves room for. Beyond it the system drops
 * connections silently, and the upstream cannot be reached either: it is better to refuse a few with a log line.
 */
import { readFileSync } from 'node:fs';

/** What the log, the key's store, the modules and the event loop hold open, generously. */
const ownDescriptors = 64;

/** How many files a process may have open, by the text of its `/proc/self/limits` (proc(5)); `undefined` where it does not say. */
export function maxOpenFiles(limits: string): number | undefined {
  const digits = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * The connections to allow: those asked for, or fewer where the limit is too low for them.
 *
 * @param limits the text of `/proc/self/limits`
 */
export function connectionsWithin(limits: string, wanted: number, upstreamConnections: number): number {
  const limit = maxOpenFiles(limits) ?? Number.POSITIVE_INFINITY;
  const reserved = Math.min(ownDescriptors + upstreamConnections, Math.ceil(limit / 2));
  return Math.min(wanted, limit - reserved);
}

/** The limits of this process; nothing where the system does not show them. */
export function readLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'latin1');
  } catch {
    return '';
  }
}
