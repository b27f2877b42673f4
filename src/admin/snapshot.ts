/** Reads everything that is shown at one moment: for each request, and every five seconds for the history. */
import { performance } from 'node:perf_hooks';
import { showGate } from './gate-queue.ts';
import type { AdminSnapshot, AdminSources, WorkspaceSnapshot, WorkspaceSources } from './sources.ts';

/** @param describedCallers how many callers to describe; they are counted in any case */
export async function takeSnapshot(sources: AdminSources, describedCallers: number): Promise<AdminSnapshot> {
  // Before the first await, so that waiting for it is not counted as lag.
  const loopLagSeconds = await loopLag();
  const connections = await sources.connections();
  const { user, system } = process.cpuUsage();
  const { active, idle } = performance.eventLoopUtilization();
  return {
    version: sources.version,
    nodeVersion: process.version,
    at: Date.now(),
    startedAt: sources.startedAt,
    notReady: sources.notReady(),
    requests: sources.requests(),
    workspaces: sources.workspaces.map(snapshotOf),
    callers: sources.callers(describedCallers),
    log: sources.log(),
    certificate: sources.certificate(),
    fleet: sources.fleet(),
    waiting: sources.waiting(),
    connections,
    cpuSeconds: (user + system) / 1e6,
    residentBytes: process.memoryUsage.rss(),
    loopBusySeconds: active / 1_000,
    loopIdleSeconds: idle / 1_000,
    loopLagSeconds,
  };
}

function snapshotOf(sources: WorkspaceSources): WorkspaceSnapshot {
  return {
    name: sources.name,
    key: sources.key(),
    gate: showGate(sources.gate(), performance.now()),
    circuit: sources.circuit(),
    cache: sources.cache(),
    attempts: sources.attempts(),
  };
}

/** From now to the next turn of the event loop: how long a request that arrives now waits before it is read. */
async function loopLag(): Promise<number> {
  const startedMs = performance.now();
  await new Promise((resolve) => setImmediate(resolve));
  return (performance.now() - startedMs) / 1_000;
}
