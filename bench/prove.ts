/**
 * The gateway against programs that others wrote: the table of `docs/security.md`, made anew.
 *
 *   npm run prove [-- PART…]     (no part named: all of them)
 *
 * A part is any command that prints rows of the table, as `bench/prove/suite.ts` does, among what else it has to say.
 * One whose programs are missing is skipped with a line that names them; with REQUIRE_PROOFS=true it has failed.
 * Exit status 1 where a part fails.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { findOnPath } from '../test/support/find-on-path.ts';
import { httpServers } from './prove/http/servers.ts';
import { isPassed, tableHead } from './prove/suite.ts';

interface Part {
  /** Programs on the path, or files of the project; of a list any one does. */
  readonly needs: readonly (string | readonly string[])[];
  /** A program and its arguments, run in the root of the project. */
  readonly command: readonly string[];
}

// `npm ci --prefix bench/prove --ignore-scripts`
const [prism, stryker] = ['bench/prove/node_modules/.bin/prism', 'bench/prove/node_modules/.bin/stryker'];
// `npm ci --prefix test/libraries`
const libraries = 'test/libraries/node_modules';
const serverPrograms = new Set(httpServers.map(({ program }) => program));
const parts: Readonly<Record<string, Part>> = {
  aws: { needs: ['moto_server', libraries], command: ['node', 'bench/prove/aws-secrets.ts'] },
  google: { needs: ['drongo', libraries], command: ['node', 'bench/prove/google-secrets.ts'] },
  vault: { needs: [['bao', 'vault']], command: ['node', 'bench/prove/vault.ts'] },
  faults: { needs: ['strace', 'gcc'], command: ['node', 'bench/prove/faults.ts'] },
  clocks: { needs: ['faketime', 'redis-server'], command: ['node', 'bench/prove/clocks.ts'] },
  // In a network of its own: what iptables drops there is of no other program. It takes root.
  network: {
    needs: ['iptables', 'ip', 'python3', 'redis-server'],
    command: ['unshare', '--net', 'node', 'bench/prove/network.ts'],
  },
  systemd: {
    needs: ['/lib/systemd/systemd', 'systemctl', 'unshare', 'redis-server'],
    command: ['unshare', '--net', '--mount', 'node', 'bench/prove/systemd.ts'],
  },
  scarcity: { needs: ['slowhttptest', 'taskset'], command: ['node', 'bench/prove/scarcity.ts'] },
  tls: { needs: ['sslscan', 'openssl', 'testssl'], command: ['node', 'bench/prove/tls.ts'] },
  // nginx, haproxy, apache2, squid …: each by its program.
  ...Object.fromEntries(
    [...serverPrograms].map((program) => [
      program,
      { needs: [program], command: ['node', 'bench/prove/http.ts', program] },
    ]),
  ),
  clients: {
    needs: ['schemathesis', 'openapi-python-client', 'redbot', 'mypy', 'go', prism, libraries],
    command: ['node', 'bench/prove/clients.ts'],
  },
  release: {
    needs: ['git', 'tar', ['valkey-server', 'redis-server']],
    command: ['node', 'bench/prove/release.ts'],
  },
  mutants: { needs: [stryker], command: ['node', 'bench/prove/mutants.ts'] },
};

interface Outcome {
  readonly rows: readonly string[];
  readonly isFailed: boolean;
}

/** @returns the rows that the command printed, and whether it ended well with every case passed */
async function prove(name: string, { command: [program = '', ...words] }: Part): Promise<Outcome> {
  const child = spawn(program, words, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  process.once('SIGTERM', () => child.kill());
  const exited = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
  });
  const rows: string[] = [];
  let isSkipped = false;
  for await (const line of createInterface({ input: child.stdout })) {
    isSkipped ||= line.startsWith('SKIPPED');
    if (line.startsWith('| ')) rows.push(`| ${name} ${line}`);
    else process.stdout.write(`${name}: ${line}\n`);
  }
  const status = await exited;
  const isTried = (rows.length > 0 || isSkipped) && rows.every(isPassed);
  return { rows, isFailed: status !== 0 || !isTried };
}

function isThere(program: string): boolean {
  return program.includes('/') ? existsSync(program) : findOnPath(program) !== undefined;
}

const root = fileURLToPath(new URL('..', import.meta.url));
process.chdir(root);
process.env['PATH'] += ':/usr/sbin';
const named = process.argv.slice(2);
const unknown = named.filter((name) => !Object.hasOwn(parts, name));
if (unknown.length > 0) {
  throw new TypeError(
    `npm run prove [-- PART…]: ${unknown.join(', ')} is none of ${Object.keys(parts).join(', ')}`,
  );
}
const table: string[] = [];
for (const [name, part] of Object.entries(parts)) {
  if (named.length > 0 && !named.includes(name)) continue;
  const missing = part.needs.filter((need) => ![need].flat().some(isThere));
  if (missing.length > 0) {
    const needed = missing.map((need) => [need].flat().join(' or ')).join(', ');
    process.stdout.write(
      `${name}: SKIPPED, not there: ${needed} (docs/security.md says how to get all that parts need)\n`,
    );
    if (process.env['REQUIRE_PROOFS'] === 'true') process.exitCode = 1;
    continue;
  }
  const { rows, isFailed } = await prove(name, part);
  table.push(...rows);
  process.stdout.write(`${name}: ${isFailed ? 'FAILED' : 'passed'}\n`);
  if (isFailed) process.exitCode = 1;
}
process.stdout.write(`\n${tableHead}\n${table.join('\n')}\n`);
