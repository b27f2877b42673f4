/** Hands the bytes of connections on, both ways, and keeps them: what one program really sent to another. */
import { type AddressInfo, connect, createServer } from 'node:net';

export interface Link {
  /** By the one that connected, as Latin-1. */
  readonly sent: () => string;
  readonly answered: () => string;
}

export interface Recorder {
  readonly port: number;
  /** All connections so far. */
  readonly links: readonly Link[];
  close(): Promise<void>;
}

/** @param to where the connections lead; asked for each */
export async function startRecorder(to: () => number): Promise<Recorder> {
  const links: Link[] = [];
  const open = new Set<{ destroy(): unknown }>();
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = connect({ port: to(), host: '127.0.0.1', allowHalfOpen: true });
    const [sent, answered]: [Buffer[], Buffer[]] = [[], []];
    links.push({
      sent: () => Buffer.concat(sent).toString('latin1'),
      answered: () => Buffer.concat(answered).toString('latin1'),
    });
    near.on('data', (chunk: Buffer) => sent.push(chunk));
    far.on('data', (chunk: Buffer) => answered.push(chunk));
    near.pipe(far).pipe(near);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(one);
      one
        .on('error', () => other.destroy())
        .on('close', () => {
          open.delete(one);
          other.destroy();
        });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    links,
    close: () =>
      new Promise((resolve) => {
        for (const one of open) one.destroy();
        server.close(() => resolve());
      }),
  };
}

/** Sends bytes on a connection of their own. @returns all that came until it ended or was quiet for a while */
export function exchange(port: number, bytes: string, quietMs: number, firstMs = 20_000): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const chunks: Buffer[] = [];
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(chunks).toString('latin1'));
    };
    let timer = setTimeout(finish, firstMs);
    socket.on('connect', () => socket.write(bytes, 'latin1'));
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      clearTimeout(timer);
      timer = setTimeout(finish, quietMs);
    });
    socket.on('close', finish).on('error', finish);
  });
}
