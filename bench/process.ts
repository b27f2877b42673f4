/** Programs under measurement: started, asked what they have used, and ended by their process ids. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { onCore } from './cores.ts';

export interface Program {
  readonly pid: number;
  /** The first line it printed, as JSON. */
  readonly said: Readonly<Record<string, unknown>>;
  /** CPU time of the process and its children so far, user and system, in µs. */
  cpuUs(): number;
  /** Resident memory of the process and its children, in MiB. */
  residentMiB(): number;
  /** What it wrote on standard error so far. */
  errors(): string;
  end(): Promise<void>;
}

export interface ProgramOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly core?: number | undefined;
  /** Whether it prints a first line that says where it is; else it is given as soon as it runs. */
  readonly speaks: boolean;
}

const startTimeoutMs = 60_000;
const running = new Set<ChildProcess>();

// Whatever happens to the benchmark, nothing it started stays behind.
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

export async function startProgram(options: ProgramOptions): Promise<Program> {
  const [command, args] = onCore(options.core, options.command, options.args);
  const child = spawn(command, args, {
    env: { PATH: process.env['PATH'] ?? '', ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  running.add(child);
  let errors = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => {
      running.delete(child);
      resolve();
    });
  });
  const said = options.speaks
    ? await firstLine(child, exited, () => `${options.command} ${options.args.join(' ')}: ${errors}`)
    : {};
  const pid = child.pid ?? 0;
  return {
    pid,
    said,
    cpuUs: () => family(pid).reduce((sum, one) => sum + cpuUsOf(one), 0),
    residentMiB: () => family(pid).reduce((sum, one) => sum + residentMiBOf(one), 0),
    errors: () => errors,
    async end() {
      if (!running.has(child)) return;
      child.kill('SIGTERM');
      const forced = setTimeout(() => child.kill('SIGKILL'), 3_000);
      await exited;
      clearTimeout(forced);
    },
  };
}

function firstLine(
  child: ChildProcess,
  exited: Promise<void>,
  describe: () => string,
): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    let text = '';
    const timer = setTimeout(() => reject(new Error(`said nothing: ${describe()}`)), startTimeoutMs);
    void exited.then(() => reject(new Error(`ended at once: ${describe()}`)));
    child.stdout?.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (!text.includes('\n')) return;
      clearTimeout(timer);
      resolve(JSON.parse(text.slice(0, text.indexOf('\n'))) as Record<string, unknown>);
    });
  });
}

/** A process and its direct children: nginx answers in a worker. */
function family(pid: number): number[] {
  const children = readOr(`/proc/${pid}/task/${pid}/children`, '');
  return [pid, ...children.split(' ').filter(Boolean).map(Number)];
}

/** All threads: V8 compiles and collects in others. To the nanosecond where the kernel tells, else in ticks of 10 ms. */
export function cpuUsOf(pid: number): number {
  let ns = 0;
  for (const task of tasksOf(pid)) {
    const text = readOr(`/proc/${pid}/task/${task}/schedstat`, '');
    if (text === '') return ticksOf(pid) * 10_000;
    ns += Number(text.split(' ')[0]);
  }
  return ns / 1_000;
}

function ticksOf(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

function tasksOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/task`);
}

function residentMiBOf(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB/m.exec(readOr(`/proc/${pid}/status`, ''))?.[1];
  return Number(kib ?? 0) / 1_024;
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}

/** A port that is free at the moment. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
