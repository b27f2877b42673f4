#!/usr/bin/env node
/**
 * The executable, in JavaScript that Node 18 can run: it finds a Node that is new enough for the gateway, so that a
 * checkout works on a machine whose own Node is too old. Runs `dist/main.js` where it is built, else `src/main.ts`.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

// Node would open its inspector, through which anyone on this host could read the environment, and a key in it.
process.on('SIGUSR1', () => {});

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const main = ['dist/main.js', 'src/main.ts'].map((file) => join(root, file)).find((file) => existsSync(file));

if (main === undefined) {
  fail('neither dist/main.js nor src/main.ts exists: run "npm ci && npm run build"');
} else if (process.env.NODE_DEBUG) {
  // With `child_process` Node would print the environment of what is started below, a key in it.
  fail('NODE_DEBUG is set: not with a secret in memory. It prints what the gateway reads and sends');
} else if (isNewEnough(process.versions.node)) {
  // In this process: one less to start, to signal and to wait for.
  await import(pathToFileURL(main).href);
} else {
  const newer = nodeOfPackage();
  if (newer === undefined) {
    fail(
      `Node ${engines.node.replace('>=', '')} or later is needed, and ${process.execPath} is ${process.versions.node}. In a checkout "npm ci" brings one; elsewhere install it`,
    );
  } else {
    await runWith(newer, main);
  }
}

/** @param {string} version as in `process.versions.node`; `engines` is written `>=22.19` */
function isNewEnough(version) {
  const [major, minor] = version.split('.').map(Number);
  const [leastMajor, leastMinor = 0] = engines.node.replace('>=', '').split('.').map(Number);
  return major > leastMajor || (major === leastMajor && minor >= leastMinor);
}

/** The Node that the package `node`, a development dependency, has brought; `undefined` where it has not. */
function nodeOfPackage() {
  try {
    const folder = dirname(createRequire(import.meta.url).resolve('node/package.json'));
    const file = join(folder, 'bin', process.platform === 'win32' ? 'node.exe' : 'node');
    return existsSync(file) ? file : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Runs the gateway in a process of its own; signals, streams and the exit status are the same as in this one. So are
 * Node's flags: the gateway refuses those that could show a secret, and both processes end.
 */
async function runWith(node, file) {
  const { default: inspector } = await import('node:inspector');
  if (inspector.url() !== undefined) inspector.close();
  // Those of sd_listen_fds(3) come behind the three that every process has.
  const { LISTEN_PID, LISTEN_FDS } = process.env;
  const passed = Number(LISTEN_PID) === process.pid ? Number(LISTEN_FDS) || 0 : 0;
  const child = spawn(node, [...process.execArgv, '--', file, ...process.argv.slice(2)], {
    stdio: Array(3 + passed).fill('inherit'),
  });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to both processes, and a second one would end the gateway at once.
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.on('error', (error) => fail(`${node} cannot be run: ${error.message}`));
  child.on('exit', (status, signal) => {
    // 128 and the signal's number is how a shell reports a process that a signal has ended.
    process.exitCode = signal === null ? status : 128 + constants.signals[signal];
  });
}

/** @param {string} why */
function fail(why) {
  process.stderr.write(`analytics-gateway: ${why}.\n`);
  process.exitCode = 2;
}
