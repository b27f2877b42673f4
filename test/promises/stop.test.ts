import { writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { makeCertificate } from '../support/certificate.ts';
import { accounts } from '../support/gateway.ts';
import { settingsFor, standInFor, start, temporaryFolder, until } from '../support/process.ts';

describe.concurrent('what was sent before a stop', () => {
  it.for(['TCP', 'TLS', 'a Unix socket'])(
    'what was sent before a stop is answered, on new and on standing connections: %s',
    async (kind, owner) => {
      const standIn = await standInFor(owner);
      const folder = temporaryFolder(owner);
      const { settings, dial } = listenerOf(kind, folder);
      const gateway = start(owner, ['serve'], {
        settings: { ...settingsFor(standIn.url), SHUTDOWN_GRACE: '5m', ...settings },
      });
      const [, port] = await gateway.printed(/"url":"[a-z]+:[^"]*?(\d*)"/);
      const standing = Array.from({ length: 40 }, () => new Caller(dial(Number(port))));
      await Promise.all(standing.map((caller) => caller.send('?stored')));
      await Promise.all(standing.map((caller) => caller.answered(1)));
      gateway.signal('SIGSTOP');
      // One request, or one behind another; from the store and not.
      const targets = (at: number): string[] =>
        at % 2 === 0 ? [`?${at}`] : ['?stored', `?${at}`, '?stored'];
      const fresh = Array.from({ length: 120 }, () => new Caller(dial(Number(port))));
      const sent = [...standing, ...fresh].map((caller, at) => caller.send(...targets(at)));
      // A handshake needs the gateway: of new TLS connections its first part is on the way.
      await Promise.all(kind === 'TLS' ? [...sent.slice(0, 40), ...fresh.map((one) => one.begun)] : sent);
      gateway.signal('SIGTERM');
      gateway.signal('SIGCONT');
      const answers = await Promise.all([...standing, ...fresh].map(({ ended }) => ended));
      expect(answers).toEqual(answers.map((_, at) => (at < standing.length ? 1 : 0) + targets(at).length));
      expect(await gateway.exited).toBe(0);
    },
  );
});

/** A listener of a kind, and how it is called. */
function listenerOf(
  kind: string,
  folder: string,
): { settings: Record<string, string>; dial: (port: number) => Socket } {
  if (kind === 'a Unix socket') {
    const path = join(folder, 'socket');
    return { settings: { HOST: `unix:${path}` }, dial: () => connect(path) };
  }
  if (kind === 'TCP') return { settings: {}, dial: (port) => connect(port, '127.0.0.1') };
  const { key, cert } = makeCertificate();
  const [TLS_KEY_FILE, TLS_CERT_FILE] = [join(folder, 'key'), join(folder, 'cert')];
  writeFileSync(TLS_KEY_FILE, key, { mode: 0o600 });
  writeFileSync(TLS_CERT_FILE, cert);
  const dial = (port: number): Socket => connectTls({ host: '127.0.0.1', port, ca: cert });
  return { settings: { TLS_KEY_FILE, TLS_CERT_FILE, HEADERS_TIMEOUT: '1m' }, dial };
}

/** One connection that counts its good replies. */
class Caller {
  /** The connection is in the hands of the kernel. */
  readonly begun: Promise<unknown>;
  /** How many replies came until the gateway ended the connection. */
  readonly ended: Promise<number>;
  readonly #socket: Socket;
  #text = '';

  constructor(socket: Socket) {
    this.#socket = socket.setEncoding('latin1').on('data', (text: string) => (this.#text += text));
    this.begun = new Promise((resolve) => socket.once('connect', resolve));
    this.ended = new Promise((resolve) => {
      socket.on('error', () => {}).once('close', () => resolve(this.#count()));
    });
  }

  /** Resolves when the requests are in the hands of the kernel. */
  async send(...queries: string[]): Promise<void> {
    const text = queries
      .map((query) => `GET ${accounts}${query} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      .join('');
    await new Promise((resolve) => this.#socket.write(text, resolve));
  }

  answered(count: number): Promise<void> {
    return until(() => this.#count() === count);
  }

  #count(): number {
    return this.#text.split('HTTP/1.1 200 OK\r\n').length - 1;
  }
}
