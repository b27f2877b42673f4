/**
 * Runs an image as a container would be run: the entry point and command that the image names, as the user it names.
 * Buildah takes a command and no entry point, so they are read from the image's configuration and joined here.
 *
 *     BUILDAH='buildah --root …' node .ci/try-image.ts IMAGE
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { hash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { standInKey, startStandIn } from '../src/demo/stand-in.ts';

const [, , image = ''] = process.argv;
const [program = 'buildah', ...options] = (process.env['BUILDAH'] ?? 'buildah').split(' ');
const root = fileURLToPath(new URL('..', import.meta.url));
const token = randomBytes(32).toString('base64url');

interface ImageConfig {
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly User: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

/** Longer than all of this takes on a slow machine: a step that hangs must not hold the script. */
const patienceMs = 90_000;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

function buildah(...words: readonly string[]): string {
  return execFileSync(program, [...options, ...words], { encoding: 'utf8', timeout: patienceMs });
}

const { Docker } = JSON.parse(buildah('inspect', '--type', 'image', image)) as {
  Docker: { config: ImageConfig };
};
const { Entrypoint, Cmd, User, Labels } = Docker.config;
const container = buildah('from', '--pull-never', image).trim();

/** The words that buildah runs them with; settings are the container's environment. */
function inContainer(words: readonly string[], settings: Readonly<Record<string, string>>): string[] {
  const env = Object.entries(settings).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
  const mount = ['--volume', `${folder}:/run/gateway:ro`];
  return [...options, 'run', '--isolation', 'chroot', ...mount, ...env, container, '--', ...words];
}

interface Ended {
  readonly status: number | null;
  readonly output: string;
}

/** Runs to the end what `docker run IMAGE …words` would run. */
function runImage(words: readonly string[], settings: Readonly<Record<string, string>>): Promise<Ended> {
  return ending(spawn(program, inContainer([...Entrypoint, ...words], settings)));
}

function ending(child: ChildProcess): Promise<Ended> {
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve({ status, output }));
  });
}

/** The process below this one, at whatever depth, that runs the gateway: what a container's signals go to. */
function gatewayBelow(pid: number): number | undefined {
  for (const child of childrenOf(pid)) {
    const words = readFileSync(`/proc/${child}/cmdline`, 'utf8').split('\0');
    if (words[0]?.endsWith('/node') && words.includes('/app/dist/main.js')) return child;
    const found = gatewayBelow(child);
    if (found !== undefined) return found;
  }
  return undefined;
}

function childrenOf(pid: number): number[] {
  if (!existsSync(`/proc/${pid}/task`)) return [];
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

async function tryConfiguration(): Promise<void> {
  assert.deepEqual(Cmd, ['serve']);
  assert.equal(User, '1000:1000');
  assert.equal(Labels['org.opencontainers.image.licenses'], 'MIT');
  const { version } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as { version: string };
  assert.equal(Labels['org.opencontainers.image.version'], version);
  const bill = await ending(
    spawn(program, inContainer(['node', '-p', 'fs.readFileSync("/app/dist/sbom.cdx.json", "utf8")'], {})),
  );
  const { components } = JSON.parse(bill.output) as { components: readonly { name: string }[] };
  for (const name of ['hono', 'undici', 'pino'])
    assert.ok(
      components.some((one) => one.name === name),
      name,
    );
  say(`the image says what it is and lists ${components.length} libraries`);
}

async function tryCommands(settings: Readonly<Record<string, string>>): Promise<void> {
  const list = await runImage(['token', 'list'], settings);
  assert.equal(list.status, 0, list.output);
  assert.match(list.output, /dashboard/);
  const onPath = await ending(spawn(program, inContainer(['analytics-gateway', '--version'], {})));
  assert.equal(onPath.status, 0, onPath.output);
  const check = await runImage(['check'], settings);
  assert.equal(check.status, 0, check.output);
  assert.match(check.output, /can work with these settings/);
  // Node would take the option for its own, and end with status 9.
  const words = ['check', '--env-file', 'none.env'];
  const byPath = ending(spawn(program, inContainer(['analytics-gateway', ...words], settings)));
  for (const missing of [await runImage(words, settings), await byPath]) {
    assert.equal(missing.status, 2, missing.output);
    assert.match(missing.output, /--env-file: the file \S+none\.env can't be read/);
  }
  say('token list, check and the command on the path work, and take --env-file for themselves');
}

/** Serves by the image's own command, answers, and drains on SIGTERM while a request is under way. */
async function tryServing(settings: Readonly<Record<string, string>>): Promise<void> {
  const port = await freePort();
  const started = { ...settings, PORT: String(port) };
  const child = spawn(program, inContainer([...Entrypoint, ...Cmd], started));
  const ended = ending(child);
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.includes('"listening"')) resolve();
    });
    void ended.then(({ output }) => reject(new Error(`it ended: ${output}`)));
  });
  const gateway = gatewayBelow(child.pid ?? 0);
  assert.ok(gateway !== undefined, 'the gateway runs below buildah');
  try {
    const status = readFileSync(`/proc/${gateway}/status`, 'utf8');
    assert.match(status, /^Uid:\t1000\t/m);
    const url = `http://127.0.0.1:${port}`;
    const headers = { authorization: `Bearer ${token}` };
    assert.equal((await fetch(`${url}/api/analytics/accounts/`)).status, 401);
    const answer = await fetch(`${url}/api/analytics/accounts/`, { headers });
    assert.equal(answer.status, 200);
    const health = Docker.config.Healthcheck.Test.slice(1);
    const healthy = await ending(spawn(program, inContainer(health, started)));
    assert.deepEqual(healthy, { status: 0, output: 'ready\n' });
    // A read that takes a while: the drain has to wait for it.
    standIn.reset();
    const last = fetch(`${url}/api/analytics/accounts/?another=1`, { headers });
    while (standIn.requests.length === 0) await setTimeout(10);
    process.kill(gateway, 'SIGTERM');
    assert.equal((await last).status, 200);
    const { status: exit, output } = await ended;
    assert.equal(exit, 0, output);
    assert.match(output, /"stopped"/);
    assert.ok(!output.includes(standInKey) && !output.includes(token), 'no secret in the log');
  } finally {
    // Below buildah, it would live on without it.
    if (child.exitCode === null) process.kill(gateway, 'SIGKILL');
  }
  say('serve answers, is healthy and drains');
}

const folder = mkdtempSync(join(tmpdir(), 'try-image-'));
const standIn = await startStandIn({ latencyMs: 300 });
try {
  // The container's user reads them.
  chmodSync(folder, 0o755);
  const callers = [{ name: 'dashboard', tokens: [{ sha256: hash('sha256', token, 'hex') }] }];
  writeFileSync(join(folder, 'callers.json'), JSON.stringify({ callers }));
  const settings = {
    UPSTREAM_BASE_URL: standIn.url,
    UPSTREAM_API_KEY: standInKey,
    CALLERS_FILE: '/run/gateway/callers.json',
    HOST: '127.0.0.1',
    ADMIN_PORT: 'off',
  };
  await tryConfiguration();
  await tryCommands(settings);
  await tryServing(settings);
} finally {
  await standIn.close();
  buildah('rm', container);
  rmSync(folder, { recursive: true });
}
