/**
 * Runs the command lines of README and docs/ as they are written, in a checkout of the project, with a Node first on the
 * path that is too old for the gateway, where the machine has one.
 *
 * What differs from a reader's machine: `npm ci` does nothing, because `node_modules` is there; addresses, ports and
 * files that a document takes for granted are those of this test (`here` below); and of all `npx analytics-gateway …`
 * only README's first server goes through npm's own npx and `bin/`: the others start the built program at once.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { linkCheckout } from './support/checkout.ts';
import { blocksOf, documents, readDocument } from './support/documents.ts';
import { findOnPath } from './support/find-on-path.ts';
import { findOldNode } from './support/old-node.ts';
import { builtMain, compileCache } from './support/program.ts';
import { type StandIn, standInKey, startStandIn } from './support/stand-in/stand-in.ts';

const oldNode = findOldNode();
const hasCurl = findOnPath('curl') !== undefined;
const folder = mkdtempSync(join(tmpdir(), 'gateway-documents-'));
const checkout = join(folder, 'checkout');
const keyFile = join(folder, 'upstream-key');
/** Has an `npx` in it that starts the built program, under the Node that npm brought. Npm's own takes half a second of work. */
const quickNpx = join(folder, 'npx');
let upstream: StandIn;

const withCommands = documents.filter(
  (path) =>
    /^(?:README\.md|docs\/)/.test(path) &&
    blocksOf(readDocument(path)).some(({ language }) => language === 'sh'),
);

const usesCurl = (path: string): boolean =>
  blocksOf(readDocument(path)).some(
    ({ language, text, notRunBecause }) =>
      language === 'sh' && notRunBecause === undefined && /\bcurl\b/.test(text),
  );

beforeAll(async () => {
  linkCheckout(checkout);
  makePrograms();
  writeFileSync(keyFile, standInKey, { mode: 0o600 });
  // An answer of 400 and above is an error for curl, which prints nothing of its own.
  writeFileSync(join(folder, '.curlrc'), 'fail\nsilent\nshow-error\nmax-time = 60\n');
  upstream = await startStandIn();
});

afterAll(async () => {
  await upstream.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('the command lines of the documents', () => {
  it.skipIf(oldNode === undefined)(
    'run with a Node first on the path that is too old for the gateway',
    () => {
      const version = execFileSync('node', ['--version'], { env: environment(), encoding: 'utf8' });
      expect(version).toMatch(/^v(?:1\d|20|21)\./);
    },
  );

  it.for(withCommands)('%s: each runs as written', { timeout: 240_000 }, async (path, { skip }) => {
    skip(!hasCurl && usesCurl(path), 'curl is not installed');
    // README sets what it needs itself.
    const session = new Session(path === 'README.md' ? {} : needed());
    try {
      for (const { language, text, notRunBecause } of blocksOf(readDocument(path))) {
        if (notRunBecause !== undefined) continue;
        if (language === 'json') session.writeCallers(text);
        if (language === 'sh') await session.run(text);
      }
    } finally {
      await session.stopServer();
    }
  });
});

/** What the documents take from README: the settings that every gateway needs, and that `npx` finds the executable. */
function needed(): Record<string, string> {
  return {
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEY_FROM: `file:${keyFile}`,
    ...withQuickNpx(),
  };
}

function withQuickNpx(): Record<string, string> {
  return { PATH: [quickNpx, environment()['PATH']].join(delimiter) };
}

/** One document's terminals: what was exported, and the server that runs in the foreground of one of them. */
class Session {
  readonly #exported: Record<string, string>;
  #server: Server | undefined;

  constructor(exported: Record<string, string>) {
    this.#exported = { ...exported };
  }

  /** A callers file that a document shows is the one that its next command uses. */
  writeCallers(text: string): void {
    if (text.startsWith('{ "callers"') && !text.includes('<'))
      writeFileSync(join(checkout, 'callers.json'), text);
  }

  async run(block: string): Promise<void> {
    let umask = '';
    for (const line of block.replaceAll(/\\\n\s*/g, '').split('\n')) {
      const command = this.#here(line);
      const exported = /^export (\w+)=(.*)$/.exec(command);
      if (command === '' || ranElsewhere.test(command)) continue;
      if (exported !== null) this.#exported[exported[1] ?? ''] = exported[2] ?? '';
      else if (command.startsWith('umask ')) umask = `${command}; `;
      else if (serves.test(command)) await this.#serve(command);
      else {
        if (/\bcurl\b/.test(command) && this.#server === undefined)
          await this.#serve('npx analytics-gateway');
        await this.#runToEnd(`${umask}${this.#here(line)}`);
      }
    }
  }

  async stopServer(): Promise<void> {
    await this.#server?.interrupt();
    this.#server = undefined;
  }

  async #serve(command: string): Promise<void> {
    await this.stopServer();
    this.#server = new Server(command, environment(this.#exported));
    await this.#server.ready;
    // One server of README shows that npm's own npx works, and passes Ctrl-C on.
    if (command.includes('npx ')) Object.assign(this.#exported, withQuickNpx());
  }

  async #runToEnd(command: string): Promise<void> {
    const running = new Shell(command, environment({ ...this.#exported, ...withQuickNpx() }));
    const status = await running.ended;
    expect(status, `${command}\n${running.output}`).toBe(0);
    const shows = Object.entries(shown).find(([part]) => command.includes(part))?.[1];
    if (shows !== undefined) expect(running.output, command).toMatch(shows);
  }

  /** The line with the addresses and files of this test. */
  #here(line: string): string {
    return [
      ['https://analytics.example.com/api', upstream.url],
      ['/run/secrets/upstream-key', keyFile],
      ['/run/analytics', folder],
      ['HOST=0.0.0.0', 'HOST=127.0.0.1'],
      ['http://gateway:8080', this.#server?.url ?? ''],
      ['http://127.0.0.1:8080', this.#server?.url ?? ''],
      ['http://127.0.0.1:9091', this.#server?.adminUrl ?? ''],
    ].reduce((text, [written = '', ours = '']) => text.replaceAll(written, ours), line);
  }
}

/** These tests themselves, and what test/promises/package.test.ts runs in a clone. */
const ranElsewhere = /^(?:npm ci && npm test|npm pack)/;

/** A command that runs until Ctrl-C. */
const serves = /(?:npm run demo|npm start|npx analytics-gateway)\s*(?:#.*)?$/;

/** What must be seen in the output of a command that has this in it. */
const shown: Readonly<Record<string, RegExp>> = {
  'analytics-gateway check': /^Fine: /m,
  'token list': /reports-script +[0-9a-f]{12}/,
  '/status': /"fingerprint"/,
  '/metrics': /analytics_gateway_ready 1/,
  '/api/analytics/accounts/': /[[{]/,
};

/** A command line in a shell and a process group of its own, as a terminal runs it. */
class Shell {
  output = '';
  readonly ended: Promise<number | NodeJS.Signals>;
  protected readonly process: ChildProcess;

  constructor(command: string, env: NodeJS.ProcessEnv) {
    this.process = spawn('bash', ['-c', command], {
      cwd: checkout,
      env,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => this.collect(text));
    }
    this.ended = new Promise((resolve, reject) => {
      this.process.on('error', reject);
      this.process.on('close', (status, signal) => resolve(status ?? signal ?? 'SIGKILL'));
    });
  }

  protected collect(text: string): void {
    this.output += text;
  }
}

class Server extends Shell {
  readonly ready: Promise<void>;
  #looks: () => void = () => {};

  constructor(command: string, env: NodeJS.ProcessEnv) {
    super(command, env);
    this.ready = new Promise((resolve, reject) => {
      this.#looks = () => {
        if (/"msg":"listening"|stays up until Ctrl-C/.test(this.output)) resolve();
      };
      this.ended.then(
        (status) => reject(new Error(`${command} ended with ${status}:\n${this.output}`)),
        reject,
      );
    });
    // A server that ends later on is seen by the commands that ask it.
    this.ready.catch(() => {});
  }

  get url(): string {
    return this.#url(/"url":"(http:[^"]+)","version"/);
  }

  get adminUrl(): string {
    return this.#url(/"adminUrl":"(http:[^"]+)"/);
  }

  /** As Ctrl-C does: the signal goes to the whole group. Resolves once no process of it is left. */
  async interrupt(): Promise<void> {
    process.kill(-(this.process.pid ?? 0), 'SIGINT');
    await this.ended;
    await expect.poll(() => this.#isGone(), { interval: 50 }).toBe(true);
    if (this.output.includes('"msg":"listening"')) expect(this.output).toContain('"msg":"stopped"');
  }

  protected override collect(text: string): void {
    super.collect(text);
    this.#looks?.();
  }

  #url(pattern: RegExp): string {
    return pattern.exec(this.output)?.[1] ?? '';
  }

  #isGone(): boolean {
    try {
      process.kill(-(this.process.pid ?? 0), 0);
      return false;
    } catch {
      return true;
    }
  }
}

/** What a reader's shell has: nothing of this process but the path, and a `npm ci` that was run already. */
function environment(more: Readonly<Record<string, string>> = {}): NodeJS.ProcessEnv {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((one) => !one.includes('node_modules'));
  return {
    PATH: [join(folder, 'bin'), ...path].join(delimiter),
    HOME: folder,
    CURL_HOME: folder,
    PORT: '0',
    ADMIN_PORT: '0',
    NODE_COMPILE_CACHE: compileCache,
    npm_config_cache: join(folder, 'npm'),
    // Nothing that a document says may need the registry, or take a package of our command's name from it.
    npm_config_registry: 'http://127.0.0.1:9/',
    npm_config_update_notifier: 'false',
    ...more,
  };
}

/** The programs that a reader has: a Node, and an npm whose `npm ci` was run already. */
function makePrograms(): void {
  const bin = join(folder, 'bin');
  mkdirSync(bin);
  symlinkSync(oldNode ?? process.execPath, join(bin, 'node'));
  const npm = findOnPath('npm') ?? 'npm';
  writeFileSync(join(bin, 'npm'), `#!/bin/sh\n[ "$1" = ci ] || exec ${JSON.stringify(npm)} "$@"\n`, {
    mode: 0o755,
  });
  mkdirSync(quickNpx);
  writeFileSync(
    join(quickNpx, 'npx'),
    `#!/bin/sh
[ "$1" = analytics-gateway ] || exit 127
shift
exec ${join(checkout, 'node_modules/.bin/node')} ${builtMain} "$@"
`,
    { mode: 0o755 },
  );
}
