/**
 * System calls that fail, by strace, and that do less than they were asked for, by a library that is preloaded: while the
 * gateway starts, serves, rotates its key and stops, and while a token is made. What fails on an event descriptor ends
 * every program on libuv, so faults are aimed at files, sockets, pipes of the log and descriptors as such.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  globSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { builtFolder, builtMain, makeProgram } from '../../test/support/program.ts';
import { standInKey } from '../../test/support/stand-in/stand-in.ts';
import { expectAll, expectThat, type Subject, type SubjectOptions, startSubject } from './subject.ts';
import { Suite } from './suite.ts';

interface Fault {
  /** As strace names system calls: `read,readv`. */
  readonly calls: string;
  readonly error: string;
  /** Which of each thread's calls fail, as strace counts: `3`, `3+`, `1+2` (each second one). */
  readonly when?: string;
  /** Only calls that touch one of these. */
  readonly paths?: readonly string[];
}

function straceOf({ calls, error, when = '1+', paths = [] }: Fault): string[] {
  const aimed = paths.flatMap((path) => ['-P', path]);
  const what = ['-e', `trace=${calls}`, '-e', `inject=${calls}:error=${error}:when=${when}`];
  return ['-f', '-qqq', '-o', '/dev/null', ...aimed, ...what];
}

/** The gateway stays the child of this process, and strace its grandchild. */
const during = (fault: Fault): string[] => ['strace', '-D', ...straceOf(fault)];

/** Lets calls of a running process fail. @returns how to end that */
async function inject(pid: number, fault: Fault): Promise<() => Promise<void>> {
  const strace = spawn('strace', ['-p', String(pid), ...straceOf(fault)], { stdio: 'inherit' });
  const exited = new Promise<void>((resolve) => strace.once('exit', () => resolve()));
  for (let tries = 0; tries < 100 && tracerOf(pid) === 0; tries++) await sleep(50);
  expectThat(tracerOf(pid) > 0, 'strace did not attach');
  return async () => {
    strace.kill('SIGINT');
    await exited;
  };
}

function tracerOf(pid: number): number {
  return Number(/^TracerPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
}

const version = /version (\S+)/.exec(execFileSync('strace', ['--version'], { encoding: 'utf8' }))?.[1] ?? '?';
const suite = new Suite(
  'strace -e inject',
  version,
  'EIO on event descriptors and EINTR on futexes: libuv and glibc end the process',
);

/** Either it serves, or it ends with a status and a sentence that names the cause. */
async function tryStart(fault: Fault, names: RegExp, options: SubjectOptions = {}): Promise<void> {
  let subject: Subject;
  try {
    subject = await startSubject({ ...options, within: during(fault) });
  } catch (error) {
    const text = error instanceof Error ? error.message : '';
    expectThat(/ended at the start/.test(text) && names.test(text), `says: ${text}`);
    expectThat(!/^\s+at .*:\d+:\d+\)?$/m.test(text), `shows a stack: ${text}`);
    return;
  }
  expectAll(await subject.ask(5), 200);
  await subject.stop();
}

const partsNamed = (...names: readonly string[]): string[] =>
  names.flatMap((name) => globSync(join(builtFolder, 'dist/parts', `${name}*.js`)));

async function tryStarts(): Promise<void> {
  for (const error of ['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM']) {
    for (const when of ['1', '2', '1+']) {
      await suite.try(`a start where socket() number ${when} fails with ${error}`, () =>
        tryStart({ calls: 'socket', error, when }, /cannot be listened on: the (process|machine) has /),
      );
    }
  }
  for (const calls of ['bind', 'listen']) {
    await suite.try(`a start where ${calls}() says that the address is in use`, () =>
      tryStart({ calls, error: 'EADDRINUSE', when: '2' }, /is in use/),
    );
  }
  for (const error of ['EMFILE', 'EIO']) {
    await suite.try(`a start whose parts cannot be read, nor those that say so: ${error}`, () =>
      tryStart({ calls: 'openat', error, paths: partsNamed('gateway', 'start-problems') }, new RegExp(error)),
    );
  }
  for (const [file, variable] of [
    ['key', 'UPSTREAM_API_KEY_FROM'],
    ['callers.json', 'CALLERS_FILE'],
  ] as const) {
    for (const [calls, error] of [
      ['openat', 'EMFILE'],
      ['openat', 'EIO'],
      ['read,pread64', 'EIO'],
      ['read,pread64', 'EINTR'],
    ] as const) {
      for (const when of ['1', '1+']) {
        await suite.try(`a start where ${calls} ${when} of ${file} fails with ${error}`, async () => {
          const folder = mkdtempSync(join(tmpdir(), 'gateway-fault-'));
          try {
            const path = join(folder, file);
            writeFileSync(path, file === 'key' ? standInKey : anonymous, { mode: 0o600 });
            const settings = { [variable]: file === 'key' ? `file:${path}` : path };
            await tryStart({ calls, error, when, paths: [path] }, new RegExp(file), { settings });
          } finally {
            rmSync(folder, { recursive: true });
          }
        });
      }
    }
  }
}

const anonymous = JSON.stringify({ callers: [{ name: 'all', anonymous: true }] });

/** The pipe or file that a descriptor of a process leads to, as strace knows it. */
const openedAs = (pid: number, fd: number): string => readlinkSync(`/proc/${pid}/fd/${fd}`);

async function tryServing(): Promise<void> {
  for (const [error, when] of [
    ['ENOSPC', '1+'],
    ['EIO', '1+3'],
    ['EAGAIN', '1+2'],
    ['EINTR', '1+2'],
  ] as const) {
    await suite.try(`each line is written or counted while the log fails with ${error}`, async () => {
      const subject = await startSubject({ mayLoseLines: true });
      const pid = subject.gateway.pid;
      const end = await inject(pid, { calls: 'write', error, when, paths: [openedAs(pid, 1)] });
      expectAll(await subject.ask(100), 200);
      await end();
      expectAll(await subject.ask(20), 200);
      await sleep(500);
      await subject.stop();
    });
  }
  for (const error of ['EMFILE', 'ENOBUFS', 'EADDRNOTAVAIL', 'ENETUNREACH']) {
    await suite.try(
      `a read is a 502 with a line while connect() fails with ${error}, and then a 200`,
      async () => {
        const subject = await startSubject();
        const calls = error === 'EMFILE' ? 'socket' : 'connect';
        const end = await inject(subject.gateway.pid, { calls, error });
        expectAll(await subject.ask(10, { atOnce: 2 }), 502, 200);
        await end();
        await subject.untilLine(new RegExp(error));
        // The circuit may be open for a moment.
        for (let tries = 0; tries < 60 && (await subject.ask(1))[0] !== 200; tries++) await sleep(250);
        expectAll(await subject.ask(10), 200);
        await subject.stop();
      },
    );
  }
  for (const error of ['ECONNABORTED', 'EINTR', 'ENOMEM']) {
    await suite.try(`callers are answered while each second accept() fails with ${error}`, async () => {
      const subject = await startSubject();
      const end = await inject(subject.gateway.pid, { calls: 'accept4', error, when: '1+2' });
      expectAll(await subject.ask(40), 200);
      await end();
      await subject.stop();
    });
  }
  await suite.try('calls are interrupted everywhere (EINTR)', async () => {
    const calls = 'read,write,writev,epoll_pwait,connect,accept4,openat';
    const subject = await startSubject();
    const end = await inject(subject.gateway.pid, { calls, error: 'EINTR', when: '1+5' });
    expectAll(await subject.ask(60), 200);
    await end();
    await subject.stop();
  });
}

async function tryRotations(): Promise<void> {
  for (const [calls, error] of [
    ['openat', 'EMFILE'],
    ['openat', 'EIO'],
    ['read,pread64', 'EIO'],
    ['statx,stat,newfstatat', 'EIO'],
  ] as const) {
    await suite.try(`a new key is taken after ${calls} of its file failed with ${error}`, async () => {
      const subject = await startSubject();
      const { keyFile, standIn } = subject;
      const end = await inject(subject.gateway.pid, { calls, error, paths: [keyFile] });
      const fresh = 'fresh-key-8c41b2f07e93';
      standIn.keys.clear();
      standIn.keys.add(fresh);
      writeFileSync(`${keyFile}.new`, fresh, { mode: 0o600 });
      renameSync(`${keyFile}.new`, keyFile);
      const got = await subject.ask(20, { atOnce: 2 });
      expectAll(got, 200, 502, 503);
      await sleep(1_000);
      await end();
      for (let tries = 0; tries < 60 && (await subject.ask(1))[0] !== 200; tries++) await sleep(250);
      expectAll(await subject.ask(10), 200);
      await subject.stop();
    });
  }
}

async function tryStops(): Promise<void> {
  for (const [calls, error] of [
    ['shutdown', 'ENOTCONN'],
    ['close', 'EINTR'],
    ['close', 'EIO'],
    ['fsync,fdatasync', 'EIO'],
    ['unlink,unlinkat', 'EIO'],
  ] as const) {
    await suite.try(
      `it stops with 0 and answers what is under way while ${calls} fails with ${error}`,
      async () => {
        const subject = await startSubject();
        expectAll(await subject.ask(5), 200);
        const end = await inject(subject.gateway.pid, { calls, error, when: '1+2' });
        subject.standIn.behave({ latencyMs: 300 });
        const asked = subject.ask(10, { atOnce: 10 });
        await sleep(150);
        const stopped = subject.stop();
        expectAll(await asked, 200);
        await stopped;
        await end();
      },
    );
  }
}

/** Whatever fails, the file has the callers that it had, or these and the new one. */
async function tryTokens(): Promise<void> {
  for (const [calls, error] of [
    ['write,pwrite64', 'ENOSPC'],
    ['write,pwrite64', 'EIO'],
    ['fsync', 'EIO'],
    ['rename,renameat,renameat2', 'ENOSPC'],
    ['fchmod', 'EPERM'],
  ] as const) {
    await suite.try(`token create leaves a whole file where ${calls} fails with ${error}`, () => {
      const folder = mkdtempSync(join(tmpdir(), 'gateway-fault-'));
      try {
        const file = join(folder, 'callers.json');
        writeFileSync(file, anonymous, { mode: 0o600 });
        const fault = { calls, error, paths: [file, join(folder, '.callers.json.new')] };
        const words = [process.execPath, builtMain, 'token', 'create', 'new', '--file', file];
        const [program = '', ...args] = [...during(fault), ...words];
        const { status, stderr, stdout } = spawnSync(program, args, { encoding: 'utf8', timeout: 60_000 });
        const { callers } = JSON.parse(readFileSync(file, 'utf8')) as { callers: { name: string }[] };
        const has = callers.some(({ name }) => name === 'new');
        expectThat(callers[0]?.name === 'all', 'a caller is gone');
        expectThat(
          has === (status === 0),
          `status ${status}, and the caller is ${has ? 'there' : 'not there'}`,
        );
        expectThat(status === 0 || (stderr !== '' && !/^\s+at /m.test(stderr)), `says: ${stderr}`);
        expectThat(status === 0 || !stdout.includes('wag_'), 'shows a token that does not count');
        expectThat(globSync(join(folder, '.*.new')).length === 0, 'leaves its temporary file behind');
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  }
}

async function tryShortCalls(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-fault-'));
  const library = join(folder, 'short-io.so');
  const source = fileURLToPath(new URL('short-io.c', import.meta.url));
  execFileSync('gcc', ['-shared', '-fPIC', '-o', library, source, '-ldl']);
  const short = new Suite('short reads and writes, EINTR, EAGAIN at any call (short-io.c)', '–');
  await short.try('each answer and each line is whole', async () => {
    const subject = await startSubject({ settings: { LD_PRELOAD: library } });
    expectAll(await subject.ask(200, { atOnce: 8 }), 200);
    await subject.stop();
  });
  await short.try('a key is rotated and callers are read', async () => {
    const subject = await startSubject({ settings: { LD_PRELOAD: library } });
    subject.standIn.keys.add('short-key-8c41b2f07e93');
    writeFileSync(subject.keyFile, 'short-key-8c41b2f07e93');
    expectAll(await subject.ask(50), 200);
    await subject.stop();
  });
  rmSync(folder, { recursive: true });
  short.end();
}

makeProgram();
await tryStarts();
await tryServing();
await tryRotations();
await tryStops();
await tryTokens();
await tryShortCalls();
suite.end();
// A case that failed leaves its gateways.
process.exit();
