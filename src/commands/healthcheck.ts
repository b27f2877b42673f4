/** `healthcheck`: asks the gateway's own /readyz, for images without curl. Loads nothing it does not need, and needs no
 * setting but HOST, PORT and TLS_CERT_FILE. */

import { ConfigError, readSettings } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { hostInUrl, socketPath } from '../http/address.ts';
import { loadWhatThereIs } from './environment.ts';

const timeoutMs = 3_000;
const path = '/readyz';

/**
 * @param envFile `--env-file`
 * @returns 0 when the gateway says it is ready, 1 when it does not or cannot be reached, 2 where a setting that says
 * where to ask is wrong
 */
export async function healthcheck(envFile?: string): Promise<number> {
  try {
    return await askWhetherReady(await loadWhatThereIs(envFile));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(error.problems.map((problem) => `${problem}\n`).join(''));
    return 2;
  }
}

async function askWhetherReady(environment: Environment): Promise<number> {
  const names = ['HOST', 'PORT', 'TLS_CERT_FILE'] as const;
  const { HOST: host, PORT: port, TLS_CERT_FILE: certificate } = readSettings(environment, names);
  const socket = socketPath(host);
  const where = socket === undefined ? { host: reachable(host), port } : { socketPath: socket };
  const scheme = certificate === undefined ? 'http' : 'https';
  const base = `${scheme}://${hostInUrl(reachable(host))}:${port}`;
  const asked = socket === undefined ? `${base}${path}` : `${path} at ${host}`;
  // Nothing secret is sent, and a certificate for callers need not be one for loopback.
  const how = { path, timeout: timeoutMs, agent: false, rejectUnauthorized: false } as const;
  // Not by `import`, which reads all that a module has, and with that loads fetch: half of the work of a health check.
  const { request } = process.getBuiltinModule(certificate === undefined ? 'node:http' : 'node:https');
  const outcome = await new Promise<string>((resolve) => {
    const probe = request({ ...where, ...how }, (response) => {
      response.resume();
      const { statusCode } = response;
      resolve(statusCode === 200 ? 'ready' : `not ready: ${asked} answered with status ${statusCode}`);
    });
    probe.on('timeout', () => probe.destroy(new Error(`no answer within ${timeoutMs / 1_000} s`)));
    probe.on('error', (error) => resolve(`not ready: ${asked}: ${error.message}`));
    // Also where Node reports no error: an answer of 101 ends the connection without one.
    probe.on('close', () => resolve(`not ready: ${asked}: no answer in HTTP`));
    probe.end();
  });
  process.stdout.write(`${outcome}\n`);
  return outcome === 'ready' ? 0 : 1;
}

/** A listener on all addresses is asked on loopback. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  return host === '::' ? '::1' : host;
}
