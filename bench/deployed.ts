/** The gateway as it is deployed: built, and started with the image's own flags. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { imageFlags } from '../test/support/image-flags.ts';
import { builtMain, compileCache, makeProgram } from '../test/support/program.ts';

export interface Deployed {
  readonly pid: number;
  readonly port: number;
  readonly adminPort: number;
  /** The exit status, or the name of the signal that ended it; resolves once all output has been read. */
  readonly exited: Promise<number | NodeJS.Signals>;
  /** What it wrote on standard error so far; the first 64 KiB. */
  errors(): string;
  signal(name: NodeJS.Signals): void;
}

export interface DeployedOptions {
  /** The working directory: one without `.env`. */
  readonly folder: string;
  readonly settings: Readonly<Record<string, string>>;
  /** Default: the built program. */
  readonly main?: string;
  /** A command that runs the gateway in its own place, such as one that enters a control group. */
  readonly within?: readonly string[];
  /** Gets every line of standard output as it came. */
  readonly onLine: (line: string) => void;
}

const startTimeoutMs = 60_000;
const maxErrorCharacters = 65_536;

/** @throws Error with what was written on standard error, where the gateway does not start */
export async function startDeployed(options: DeployedOptions): Promise<Deployed> {
  const { folder, settings, main = builtMain, within = [], onLine } = options;
  makeProgram();
  const [command = '', ...args] = [...within, process.execPath, ...imageFlags(), main, 'serve'];
  const child = spawn(command, args, {
    cwd: folder,
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_ENV: 'production',
      NODE_COMPILE_CACHE: compileCache,
      HOST: '127.0.0.1',
      PORT: '0',
      ADMIN_PORT: '0',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(0, maxErrorCharacters);
  });
  const exited = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? signal ?? 'SIGKILL'));
  });
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  void exited.finally(() => process.off('exit', end));
  try {
    const ports = await listening(createInterface({ input: child.stdout }), onLine, exited, () => errors);
    return {
      pid: child.pid ?? 0,
      ...ports,
      exited,
      errors: () => errors,
      signal: (name) => void child.kill(name),
    };
  } catch (error) {
    end();
    throw error;
  }
}

interface Ports {
  readonly port: number;
  readonly adminPort: number;
}

/** Reads the log from the first line on; resolves when it says where both listeners are. */
function listening(
  lines: NodeJS.EventEmitter,
  onLine: (line: string) => void,
  exited: Promise<unknown>,
  errors: () => string,
): Promise<Ports> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`it did not start in time: ${errors()}`)),
      startTimeoutMs,
    );
    void exited.then(() => reject(new Error(`it ended at the start: ${errors()}`))).catch(reject);
    let adminPort = 0;
    lines.on('line', (line: string) => {
      adminPort ||= Number(/"adminUrl":"http:[^"]*:(\d+)"/.exec(line)?.[1] ?? 0);
      const port = /"url":"https?:[^"]*:(\d+)"/.exec(line)?.[1];
      if (port !== undefined) {
        clearTimeout(timer);
        resolve({ port: Number(port), adminPort });
      }
      onLine(line);
    });
  });
}
