/** A gateway that is replaced again and again while callers go on: what the tests of restarts and `npm run bench:restart` share. */
import { deepEqual, equal } from 'node:assert/strict';
import * as net from 'node:net';
import { enrol, writeCallersFile } from './callers-files.ts';
import { accounts } from './gateway.ts';
import { linesOf, type Owner, type Running, settingsFor, standInFor, start, until } from './process.ts';
import { applySteadyLoad } from './steady-load.ts';

interface BoundHandle {
  readonly fd: number;
  getsockname(out: { port?: number }): number;
  close(): void;
}

export const host = '127.0.0.1';

/** A bound socket, as a supervisor holds it: nothing accepts on it here. */
export function holdSocket({ onTestFinished }: Owner): { readonly fd: number; readonly port: number } {
  const { _createServerHandle: bind } = net as unknown as {
    _createServerHandle(address: string, port: number, family: 4): BoundHandle | number;
  };
  const handle = bind(host, 0, 4);
  if (typeof handle === 'number') throw new Error(`the socket cannot be bound: ${handle}`);
  const out: { port?: number } = {};
  handle.getsockname(out);
  onTestFinished(() => handle.close());
  return { fd: handle.fd, port: out.port ?? 0 };
}

const { token, entry } = enrol('script');

/** The settings of a gateway that others than this machine's user may reach. */
export async function settingsOf(
  owner: Owner,
  more: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  const standIn = await standInFor(owner);
  const callers = writeCallersFile([entry], owner.onTestFinished);
  return { ...settingsFor(standIn.url), CALLERS_FILE: callers, ...more };
}

/** Resolves once it listens. @returns where, as its log says it */
export async function listening(gateway: Running): Promise<string> {
  return (await gateway.printed(/"url":"([^"]+)","version"/))[1] ?? '';
}

/** Ends one. @throws AssertionError where it did not answer all that it took */
export async function end(gateway: Running): Promise<void> {
  gateway.signal('SIGTERM');
  equal(await gateway.exited, 0);
  const { msg, aborted, started, finished } = linesOf(gateway.stdout()).at(-1) ?? {};
  deepEqual({ msg, aborted, finished }, { msg: 'stopped', aborted: 0, finished: started });
}

/** `HOST=fd:3`: one after the other behind a socket that is held. `REUSE_PORT=on`: each beside the one before it. */
export const waysToRestart = ['HOST=fd:3', 'REUSE_PORT=on'] as const;

export interface RestartOptions {
  readonly restarts: number;
  /** How many requests are answered by each process, at least. */
  readonly requestsEach: number;
  /** Node's. */
  readonly flags?: readonly string[];
}

/** @returns what became of requests that were sent without a pause, on new connections and on kept ones */
export async function restartUnderLoad(
  owner: Owner,
  way: (typeof waysToRestart)[number],
  { restarts, requestsEach, flags = [] }: RestartOptions,
): Promise<{ readonly answered: number; readonly failures: readonly string[] }> {
  const isHeld = way === 'HOST=fd:3';
  const socket = holdSocket(isHeld ? owner : { onTestFinished: (close) => void close() });
  const { port } = socket;
  const own = isHeld ? { HOST: 'fd:3' } : { REUSE_PORT: 'on', PORT: String(port) };
  const settings = await settingsOf(owner, own);
  const serve = async (): Promise<Running> => {
    const passed = isHeld ? { passed: socket.fd } : {};
    const gateway = start(owner, ['serve'], { settings, flags, ...passed });
    equal(await listening(gateway), `http://${host}:${port}`);
    return gateway;
  };
  let gateway = await serve();
  const headers = { authorization: `Bearer ${token}` };
  const load = applySteadyLoad({ host, port, path: accounts, headers }, { fresh: 8, kept: 4 });
  for (let count = 0; count < restarts; count++) {
    const { answered } = load;
    await until(() => load.answered >= answered + requestsEach);
    const next = isHeld ? undefined : await serve();
    await end(gateway);
    gateway = next ?? (await serve());
  }
  await load.stop();
  await end(gateway);
  return { answered: load.answered, failures: load.failures };
}
