/** What the admin listener is handed of a gateway: functions that read its parts, and what it is told of them. */
import type { Server } from 'node:http';
import type { AdminOptions } from '../admin/listener.ts';
import type { WorkspaceSources } from '../admin/snapshot.ts';
import { changedSettings, isLocalHost } from '../config/config.ts';
import type { FleetSnapshot } from '../fleet/fleet.ts';
import { operationsOf } from '../operations.ts';
import { version } from '../version.ts';
import { isSecret, type LifeState, type Parts } from './parts.ts';
import type { Workspace } from './workspace.ts';

/** @param server the callers' server, whose connections are shown */
export function adminOptions(parts: Parts, life: LifeState, server: Server, port: number): AdminOptions {
  const { config, log, scrub } = parts;
  return {
    sources: {
      version,
      startedAt: parts.startedAt,
      operations: operationsOf(config).map(({ name }) => name),
      settings: changedSettings(config),
      notReady: life.notReady,
      requests: parts.counts.snapshot,
      workspaces: [...parts.workspaces.values()].map(sourcesOf),
      callers: (most) => parts.authenticator.snapshot(most),
      log: log.losses,
      certificate: life.certificate,
      waiting: () => parts.contexts.waiting,
      connections: () =>
        new Promise((resolve) => server.getConnections((_error, connections) => resolve(connections ?? 0))),
      fleet: () => fleetSnapshot(parts),
    },
    hosts: {
      listensOn: config.ADMIN_HOST,
      isLocal: isLocalHost(config.ADMIN_HOST),
      allowed: config.ALLOWED_HOSTS,
    },
    readToken: parts.readAdminToken,
    port,
    redact: (text) => scrub.redact(text),
    isSecret: (text) => isSecret(parts, text),
    onPurge: (purged) => log.events.info(purged, 'stored answers were purged by hand'),
    onRefused: (refusal) =>
      log.events[refusal.code === 'internal-error' ? 'error' : 'info'](
        refusal,
        'the admin listener refused a request',
      ),
    onFault: (error) => log.events.error({ err: error }, 'the admin listener failed'),
  };
}

/** What the admin listener shows of a workspace. */
function sourcesOf({ own, keyring, pipeline }: Workspace): WorkspaceSources {
  return {
    name: own.name,
    key: keyring.health,
    upstream: pipeline.attempts.snapshot,
    gate: pipeline.gate.snapshot,
    circuit: pipeline.circuit.snapshot,
    cache: pipeline.cache.snapshot,
    links: () => pipeline.links.snapshot(),
    purge: pipeline.cache.purge,
  };
}

/** The gateways and the store, as the first workspace sees them, and the reads and turns of all workspaces. */
function fleetSnapshot(parts: Parts): FleetSnapshot | undefined {
  const all = [...parts.workspaces.values()].flatMap(({ fleet }) => fleet?.snapshot() ?? []);
  const [first] = all;
  if (first === undefined) return undefined;
  const sum = (count: (one: FleetSnapshot) => number): number =>
    all.reduce((total, one) => total + count(one), 0);
  return {
    ...first,
    reads: {
      found: sum(({ reads }) => reads.found),
      joined: sum(({ reads }) => reads.joined),
      exchanges: sum(({ reads }) => reads.exchanges),
    },
    gate: {
      ...first.gate,
      turnsGiven: sum(({ gate }) => gate.turnsGiven),
      turnsTaken: sum(({ gate }) => gate.turnsTaken),
    },
  };
}
