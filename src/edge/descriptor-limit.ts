/**
 * How many connections of callers the machine leaves room for: by the process's limit of open files, and by its memory.
 * Beyond the first the system drops connections silently, and the upstream cannot be reached either; beyond the second it
 * ends the process. It is better to refuse a few with a log line.
 */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';

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

/** What memory there is for this process, in bytes. */
export interface Memory {
  /** That of the machine. */
  readonly totalBytes: number;
  /** Of its control group (cgroups(7)); 0 or more than the machine's where there is no limit. */
  readonly limitBytes: number;
  /** What V8's heap may grow to. */
  readonly heapBytes: number;
}

export function readMemory(): Memory {
  return {
    totalBytes: totalmem(),
    limitBytes: process.constrainedMemory(),
    heapBytes: getHeapStatistics().heap_size_limit,
  };
}

/**
 * How much of the memory connections may hold that ask for nothing: a quarter. The rest is for the gateway itself, the
 * cache, bodies in flight and replies that callers are reading. A heap that is full ends the process as well, and about
 * half of what a connection holds is there.
 */
export function connectionBytesWithin(memory: Memory): number {
  return Math.floor(Math.min(memoryBytes(memory), 2 * memory.heapBytes) / 4);
}

/** Answers in flight, and replies that callers have not read, hold no more than this each. */
const mostBodyBytes = 64 * 2 ** 20;

/**
 * How much of the memory answers in flight may hold, and as much replies that are not read: a sixteenth where that is less.
 * Of large answers as much again lies dead for a while, for V8 collects late what is outside its heap.
 */
export function bodyBytesWithin(memory: Memory): number {
  return Math.min(mostBodyBytes, Math.floor(memoryBytes(memory) / 16));
}

function memoryBytes({ totalBytes, limitBytes }: Memory): number {
  return limitBytes > 0 ? Math.min(totalBytes, limitBytes) : totalBytes;
}
