/**
 * The second listener, for those who run the gateway. It stands on the same server as the callers' one, with limits of
 * its own, and shares the event loop with it.
 */

import { listenThrough } from '../edge/adapter.ts';
import { closeServer, listen } from '../edge/listen.ts';
import { createHttpServer } from '../edge/server.ts';
import { type AdminAppOptions, createAdminApp } from './routes.ts';

export interface AdminOptions extends Omit<AdminAppOptions, 'isClosing'> {
  readonly port: number;
  /** A few scrapers, consoles and terminals. Their descriptors are among the gateway's own. */
  readonly maxConnections: number;
}

export interface Admin {
  /** Where it can be reached. */
  readonly url: string;
  close(): Promise<void>;
}

const headersTimeoutMs = 10_000;
const stillMs = 60_000;
/** How long a reply that is being sent may take when the listener closes. */
const graceMs = 500;

/** @throws ListenError naming ADMIN_HOST or ADMIN_PORT */
export async function openAdmin(options: AdminOptions): Promise<Admin> {
  const { hosts, maxConnections, onFault } = options;
  let closing = false;
  const part = createAdminApp({ ...options, isClosing: () => closing });
  const server = createHttpServer(
    listenThrough(part.app, onFault),
    { headersTimeoutMs, maxConnections, stillMs, isSecret: options.isSecret, isEnding: () => closing },
    {
      onRefused: (refusal) => options.onRefused({ reason: 'no request', ...refusal }),
      onListenerError: onFault,
    },
  );
  const names = { host: 'ADMIN_HOST', port: 'ADMIN_PORT' };
  const url = await listen(server, hosts.listensOn, options.port, { settings: names }).catch(
    (error: unknown) => {
      part.close();
      throw error;
    },
  );
  return {
    url,
    close() {
      closing = true;
      part.close();
      return closeServer(server, graceMs, () => {});
    },
  };
}
