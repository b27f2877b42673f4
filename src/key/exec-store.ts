/**
 * `exec:command args`: the key is what a command prints, so that every secret manager with a command line is a
 * store. No shell; the command's messages go nowhere, for they may quote what they are about. `check` alone shows them, to
 * a person at a terminal, without what may be the key.
 */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import type { Environment } from '../config/values.ts';
import { Key } from './key.ts';
import { storeCommandMark } from './node-flags.ts';
import { Scrubber } from './scrub.ts';
import { describeFailure, KeyStoreError, minKeyCharacters, type OpenedStore } from './store.ts';

const timeoutMs = 10_000;
const maxOutputBytes = 64 * 1024;
/** Of what a command says, the end has the reason. */
const maxSaidBytes = 4 * 1024;
/** How long after the command's end its output is waited for, where something it has started holds the pipe. */
const lastOutputMs = 500;

/** Groups of commands that run: a process that ends at once, as by a signal during its start, leaves none behind. */
const running = new Set<number>();
process.on('exit', () => {
  for (const pid of running) killGroup(pid);
});

/** Takes what a command said on its standard error, without what may be the key. */
export type OnSaid = (text: string) => void;

/**
 * @param words the program and its arguments
 * @param environment what the command gets, but for our secrets
 */
export function runCommand(
  words: readonly string[],
  environment: Environment,
  describe: string,
  onSaid?: OnSaid,
): OpenedStore {
  const [program = '', ...args] = words;
  const passed = { ...withoutSecrets(environment), [storeCommandMark]: '1' };
  return { load: (signal) => run(program, args, passed, signal, describe, onSaid) };
}

/** Our own secrets, where the environment holds them, and the settings that say where they are; of each workspace. */
const ownSecrets = /^(?:UPSTREAM_API_KEY|ADMIN_TOKEN|SHARED_STORE_(?:SENTINEL_)?PASSWORD)(?:_|$)/;
/** How long a key is kept and whether it is checked is no secret. */
const notSecret = /^UPSTREAM_API_KEY_(?:REFRESH|CHECK)$/;
/** OpenTelemetry's SDK reads credentials of the collector there. */
const collectorHeaders = /^OTEL_EXPORTER_OTLP_(?:\w+_)?HEADERS$/;

/**
 * The environment without our own secrets, and without the variables that our settings name by `env:`: the command has
 * a secret manager to ask, and needs neither another workspace's key nor the admin token or the store's password.
 */
function withoutSecrets(environment: Environment): Environment {
  const isOurs = (name: string): boolean => ownSecrets.test(name) && !notSecret.test(name);
  const named = Object.entries(environment).flatMap(([name, value]) =>
    isOurs(name) ? (/^\s*env:(.+?)\s*$/.exec(value ?? '')?.[1] ?? []) : [],
  );
  const left = new Set(named);
  return Object.fromEntries(
    Object.entries(environment).filter(
      ([name]) => !isOurs(name) && !left.has(name) && !collectorHeaders.test(name),
    ),
  );
}

function run(
  program: string,
  args: readonly string[],
  environment: Environment,
  signal: AbortSignal,
  describe: string,
  onSaid: OnSaid | undefined,
): Promise<string> {
  return new Promise((resolve, reject) => {
    let ended = false;
    const child = spawn(program, args, {
      env: { ...environment },
      stdio: ['ignore', 'pipe', onSaid === undefined ? 'ignore' : 'pipe'],
      shell: false,
      // A process group of its own, so that what the command has started can be ended with it.
      detached: true,
    });
    if (child.pid !== undefined) running.add(child.pid);
    // Before anything that may throw: an error without a listener is an uncaught exception with all arguments in it.
    child.on('error', (error) => fail(describeFailure(error)));
    // Without a free descriptor there is none, whatever the types say.
    const stdout: Readable | undefined = child.stdout ?? undefined;
    const printed = stdout && collect(stdout, (why) => fail(why));
    const said = child.stderr ? collect(child.stderr) : undefined;

    const end = (outcome: string | KeyStoreError) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      // Once it has ended, its number may be another process's.
      if (child.exitCode === null && child.signalCode === null) killGroup(child.pid);
      // What has left the group may hold the pipe open, and us with it; we have heard enough.
      stdout?.destroy();
      child.stderr?.destroy();
      const text = said?.text().trim() ?? '';
      if (text !== '') onSaid?.(saidWithoutKey(text, printed?.text() ?? ''));
      if (outcome instanceof KeyStoreError) reject(outcome);
      else resolve(outcome);
    };
    const fail = (why: string) => end(new KeyStoreError(`${describe}: the command ${why}`));
    const onAbort = () => fail('was stopped');
    const timer = setTimeout(() => fail(`did not end within ${timeoutMs / 1000} s`), timeoutMs);
    timer.unref();
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();

    // Not `close`: that would wait for whatever the command left running with our pipe.
    child.on('exit', async (status, killedBy) => {
      // What it has left running goes too, or there would be one more with each read.
      killGroup(child.pid);
      await said?.ended();
      if (killedBy !== null) fail(`was killed by ${killedBy}`);
      else if (status !== 0) fail(`ended with status ${status}`);
      else void printed?.ended().then(() => end(printed.text()));
    });
  });
}

interface Collected {
  text(): string;
  /** Resolves with the end of the stream, or after a moment: something may hold the pipe open. */
  ended(): Promise<void>;
}

/** Reads a stream. @param fail for one that may not be longer than it should; of another the end is kept */
function collect(stream: Readable, fail?: (why: string) => void): Collected {
  let chunks: Buffer[] = [];
  let length = 0;
  stream.on('data', (chunk: Buffer) => {
    length += chunk.length;
    if (fail !== undefined && length > maxOutputBytes) {
      fail(`printed more than ${maxOutputBytes / 1024} KiB`);
      return;
    }
    chunks.push(chunk);
    if (fail === undefined && length > maxSaidBytes) {
      chunks = [Buffer.concat(chunks).subarray(-maxSaidBytes)];
      length = maxSaidBytes;
    }
  });
  stream.on('error', () => fail?.('broke off'));
  return {
    text: () => Buffer.concat(chunks).toString('utf8'),
    async ended() {
      if (stream.readableEnded) return;
      await new Promise<void>((resolve) => {
        stream.once('end', resolve);
        setTimeout(resolve, lastOutputMs).unref();
      });
    },
  };
}

/** What may be the key, though nothing tells that it is: a long word of letters and digits. */
const longWord = /(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}/g;

/** What was said without what was printed, in any form, for that is to be the key; and without words that may be one. */
function saidWithoutKey(said: string, printed: string): string {
  const scrub = new Scrubber();
  const words = printed.slice(0, maxSaidBytes).match(/[\x21-\x7e]{8,}/g) ?? [];
  let text = said;
  for (const word of new Set(words)) {
    if (word.length >= minKeyCharacters) scrub.know(new Key(word, 0));
    text = text.replaceAll(word, '[…]');
  }
  return scrub.redact(text).replaceAll(longWord, '[…]');
}

/** Also ends what a wrapper script waits for: `child.kill` would leave that running, once more with each try. */
function killGroup(pid: number | undefined): void {
  // Without a number the program was never started.
  if (pid === undefined) return;
  running.delete(pid);
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All of it has ended already.
  }
}
