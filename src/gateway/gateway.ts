/** The life of a gateway: it opens its parts, listens, and ends without losing a request. */

import type { Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Admin, AdminOptions } from '../admin/routes.ts';
import type { WorkspaceSources } from '../admin/snapshot.ts';
import { changedSettings, isLocalHost } from '../config/config.ts';
import type { CertificateSnapshot, FollowedCertificate } from '../edge/certificate.ts';
import { closeServer, ListenError, listen } from '../edge/listen.ts';
import { GatewayError } from '../errors.ts';
import { proxyFor } from '../exchange/proxy.ts';
import type { FleetSnapshot } from '../fleet/fleet.ts';
import { isLoopbackHost, passedSocket } from '../http/address.ts';
import type { GatewayLogger } from '../log/logger.ts';
import { operationsOf } from '../operations.ts';
import { version } from '../version.ts';
import {
  closeParts,
  createCallersServer,
  followCertificate,
  type GatewayOptions,
  isSecret,
  type LifeState,
  openParts,
  type Parts,
} from './parts.ts';
import { missingKeys, startKeyCheck, type Workspace } from './workspace.ts';

export interface Gateway {
  /** Where the public listener can be reached. */
  readonly url: string;
  /** Where the admin listener can be reached; `undefined` for none. */
  readonly adminUrl: string | undefined;
  readonly log: GatewayLogger;
  /** How many requests wait for the upstream at the moment. */
  readonly waiting: number;
  /** `false` when no key came in time; the process should end and be started again. */
  readonly ready: Promise<boolean>;
  /** Reads the keys' stores, the callers file and the certificate again at once. */
  reload(): Promise<void>;
  /** Stops: readiness fails first, running requests finish, then everything is closed. The same promise each time. */
  drain(): Promise<void>;
}

/**
 * Opens the stores, composes the layers and listens.
 *
 * @throws CertificateError, KeyStoreError, CallersFileError, PackageError, ListenError for what the settings name
 */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const gateway = new RunningGateway(await openParts(options));
  await gateway.listen();
  return gateway;
}

class RunningGateway implements Gateway, LifeState {
  readonly #parts: Parts;
  readonly #server: Server;
  #certificate: FollowedCertificate | undefined;
  #admin: Admin | undefined;
  #url = '';
  #drained: Promise<void> | undefined;
  #endKeyChecks: readonly (() => void)[] = [];

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#server = createCallersServer(parts, this);
  }

  get url(): string {
    return this.#url;
  }

  get adminUrl(): string | undefined {
    return this.#admin?.url;
  }

  get log(): GatewayLogger {
    return this.#parts.log;
  }

  get waiting(): number {
    return this.#parts.contexts.waiting;
  }

  get ready(): Promise<boolean> {
    const all = Promise.all(this.#workspaces.map(({ keyring }) => keyring.ready));
    return all.then((loaded) => loaded.includes(true));
  }

  get #workspaces(): readonly Workspace[] {
    return [...this.#parts.workspaces.values()];
  }

  readonly isDraining = (): boolean => this.#drained !== undefined;

  readonly notReady = (): string | undefined => {
    if (this.isDraining()) return 'shutting down';
    return missingKeys(this.#workspaces);
  };

  readonly certificate = (): CertificateSnapshot | undefined => this.#certificate?.snapshot();

  async listen(): Promise<void> {
    const { config, log } = this.#parts;
    try {
      // Before the callers' one: a gateway that callers reach does not end for want of an admin listener.
      if (config.ADMIN_PORT !== 'off') this.#admin = await this.#openAdmin(config.ADMIN_PORT);
      const reusePort = config.REUSE_PORT === 'on';
      this.#url = await listen(this.#server, config.HOST, config.PORT, { reusePort });
    } catch (error) {
      await this.#admin?.close();
      await closeParts(this.#parts);
      await log.close();
      throw error;
    }
    if (this.#admin !== undefined)
      log.events.info({ adminUrl: this.#admin.url }, 'the admin listener is open');
    this.#certificate = followCertificate(this.#parts, this.#server);
    const proxy = proxyFor(config)?.describedFor(config.workspaces[0]?.baseUrl ?? config.UPSTREAM_BASE_URL);
    const { validTo } = this.#certificate?.current ?? {};
    log.events.info({ url: this.#url, version, validTo, proxy }, 'listening');
    const isLocal = isLocalHost(config.HOST) || isLoopbackHost(URL.parse(this.#url)?.hostname ?? '');
    if (!isLocal && this.#certificate === undefined) {
      // No warning: behind a proxy that ends TLS it is as it should be.
      log.events.info(
        { host: config.HOST },
        'callers send their tokens in clear, for this listener has no TLS: keep it behind a proxy that ends TLS, or set TLS_CERT_FILE and TLS_KEY_FILE',
      );
    }
    if (config.UPSTREAM_API_KEY_CHECK === 'on') {
      this.#endKeyChecks = this.#workspaces.map((one) => startKeyCheck(one, config.REQUEST_TIMEOUT));
    }
  }

  async reload(): Promise<void> {
    this.#parts.authenticator.reload();
    await Promise.all([
      ...this.#workspaces.map(({ keyring }) => keyring.reload()),
      this.#certificate?.reload(),
    ]);
  }

  drain(): Promise<void> {
    this.#drained ??= this.#stop();
    return this.#drained;
  }

  /**
   * Two gateways on one machine need no setting: the second goes without an admin listener where no setting asks
   * for one.
   */
  async #openAdmin(port: number): Promise<Admin | undefined> {
    const { config, log } = this.#parts;
    // Loaded here, so that `ADMIN_PORT=off` does not pay for it.
    const { openAdmin } = await import('../admin/routes.ts');
    try {
      return await openAdmin(adminOptions(this.#parts, this, this.#server, port));
    } catch (error) {
      const isAskedFor = changedSettings(config).some((name) => name.startsWith('ADMIN_'));
      if (isAskedFor || !(error instanceof ListenError)) throw error;
      log.events.warn({ reason: error.message }, 'there is no admin listener');
      return undefined;
    }
  }

  async #stop(): Promise<void> {
    const { config, log, contexts, counts, tracing } = this.#parts;
    log.events.info({ waiting: contexts.waiting }, 'stopping');
    for (const end of this.#endKeyChecks) end();
    await sleep(config.SHUTDOWN_DELAY);
    const graceMs = config.SHUTDOWN_GRACE - config.SHUTDOWN_DELAY;
    const endsMs = performance.now() + graceMs;
    const isHeld = passedSocket(config.HOST) !== undefined;
    const abandon = (): void => contexts.abandonAll(new GatewayError('shutting-down'));
    await closeServer(this.#server, graceMs, abandon, isHeld);
    this.#certificate?.close();
    await closeParts(this.#parts);
    if ((await tracing?.close(endsMs - performance.now())) === false)
      log.events.warn('the last spans could not be exported before the end');
    // Metrics can be read to the end.
    await this.#admin?.close();
    const { started, finished, aborted } = counts.snapshot();
    log.events.info({ started, finished: finished - aborted, aborted }, 'stopped');
    await log.close();
  }
}

/**
 * What the admin listener is handed: functions that read the parts, and what it is told of them.
 *
 * @param server the callers' server, whose connections are shown
 */
function adminOptions(parts: Parts, life: LifeState, server: Server, port: number): AdminOptions {
  const { config, log, scrub } = parts;
  return {
    sources: {
      version,
      startedAt: parts.startedAt,
      startedMs: parts.startedMs,
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
    maxConnections: parts.connections.admin,
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
