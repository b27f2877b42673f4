/** `healthcheck`: asks the gateway's own /readyz, for images without curl. Loads nothing it does not need, and needs no
 * setting but HOST, PORT and TLS_CERT_FILE. */

import { ConfigError, readSettings } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { hostInUrl, passedSocket, socketPath } from '../http/address.ts';
import { loadWhatThereIs } from './environment.ts';

const timeoutMs = 3_000;
const path = '/readyz';
/** The status of a thousand workspaces is shorter. */
const mostCharacters = 16 * 1_024 * 1_024;

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
  const { asked, answer } = askGateway({ host, port, isTls: certificate !== undefined }, path, timeoutMs);
  const outcome = await answer.then(
    ({ status }) => (status === 200 ? 'ready' : `not ready: ${asked} answered with status ${status}`),
    (error: Error) => `not ready: ${asked}: ${error.message}`,
  );
  process.stdout.write(`${outcome}\n`);
  return outcome === 'ready' ? 0 : 1;
}

export interface Listener {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
}

/** One GET of a gateway on this machine; `asked` names it for people. Rejects where there is no whole answer in time. */
export function askGateway(
  { host, port, isTls }: Listener,
  target: string,
  limitMs: number,
): { asked: string; answer: Promise<{ status: number | undefined; text: string }> } {
  const socket = socketPath(host);
  const where = socket === undefined ? { host: reachable(host), port } : { socketPath: socket };
  const base = `${isTls ? 'https' : 'http'}://${hostInUrl(reachable(host))}:${port}`;
  const asked = socket === undefined ? `${base}${target}` : `${target} at ${host}`;
  // Nothing secret is sent, and a certificate for callers need not be one for loopback.
  const how = { path: target, timeout: limitMs, agent: false, rejectUnauthorized: false } as const;
  // Not by `import`, which reads all that a module has, and with that loads fetch: half of the work of a health check.
  const { request } = process.getBuiltinModule(isTls ? 'node:https' : 'node:http');
  const answer = new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
    const probe = request({ ...where, ...how }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (text.length > mostCharacters) probe.destroy(new Error('the answer is too long'));
      });
      response.on('end', () => resolve({ status: response.statusCode, text }));
    });
    probe.on('timeout', () => probe.destroy(new Error(`no answer within ${limitMs / 1_000} s`)));
    probe.on('error', reject);
    // Also where Node reports no error: an answer of 101 ends the connection without one.
    probe.on('close', () => reject(new Error('no answer in HTTP')));
    probe.end();
  });
  return { asked, answer };
}

/** A listener on all addresses, or on a socket that was passed to it, is asked on loopback. */
function reachable(host: string): string {
  if (host === '0.0.0.0' || passedSocket(host) !== undefined) return '127.0.0.1';
  return host === '::' ? '::1' : host;
}
