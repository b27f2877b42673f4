/**
 * Callers with open arrivals: requests come at their times whether the earlier ones are answered or not. Each reply
 * is checked against its request; some callers leave before they have theirs.
 */
import { Agent, type IncomingMessage, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { below, pick, type Random } from '../../test/support/random.ts';
import { type Ledger, requestId } from './ledger.ts';

export interface CallersOptions {
  readonly port: number;
  readonly perSecond: number;
  readonly leavingShare: number;
  readonly tokens: readonly string[];
  readonly targets: readonly string[];
  readonly random: Random;
  readonly ledger: Ledger;
  /** An answer is not its request's, or is none that a caller may get. */
  readonly onWrong: (what: string) => void;
}

export interface Callers {
  /** Sends for so long; resolves when the last request is sent, not when it is answered. */
  arrive(forMs: number): Promise<void>;
  /** Sends each of them once, a few at a time; resolves when all have ended. */
  sendEach(targets: readonly string[]): Promise<void>;
  /** Sends one now, with this token or any of them. */
  send(target: string, token?: string): void;
  /** Resolves when every request has ended. */
  settled(): Promise<void>;
  close(): void;
}

/** Far beyond REQUEST_TIMEOUT: a request without an answer by then gets none. */
const patienceMs = 30_000;
/** A caller leaves within this time of its request: before it is read, while it waits, with the answer on its way. */
const leavesWithinMs = 5;
/** After a burst its connections close at once, so that descriptors show what the gateway holds and not what came. */
const maxFreeSockets = 32;
/** Of `sendEach`, at once: fewer than one caller may have waiting. */
const lanes = 16;
/** Below the time for which the gateway keeps idle connections, so that none is used as it closes. */
const idleMs = 20_000;

export function createCallers(options: CallersOptions): Callers {
  const { port, perSecond, leavingShare, tokens, targets, random, ledger, onWrong } = options;
  const agent = new Agent({ keepAlive: true, timeout: idleMs, maxFreeSockets });
  const under = new Set<Promise<void>>();

  function send(target: string, token = pick(random, tokens), leavesAfterMs?: number): Promise<void> {
    const number = ledger.send();
    const exchange = exchangeOf({ agent, port, target, number, token, leavesAfterMs }, ledger, onWrong);
    under.add(exchange);
    void exchange.finally(() => under.delete(exchange));
    return exchange;
  }

  return {
    send: (target, token) => void send(target, token),
    async sendEach(all) {
      const left = all.values();
      const lane = async (): Promise<void> => {
        for (const target of left) await send(target);
      };
      await Promise.all(Array.from({ length: lanes }, lane));
    },
    async arrive(forMs) {
      const startMs = performance.now();
      let nextMs = startMs;
      while (nextMs < startMs + forMs) {
        const waitMs = nextMs - performance.now();
        if (waitMs > 1) await sleep(waitMs);
        const leavesAfterMs = random() < leavingShare ? below(random, leavesWithinMs) : undefined;
        void send(pick(random, targets), undefined, leavesAfterMs);
        nextMs -= (Math.log(1 - random()) * 1_000) / perSecond;
      }
    },
    async settled() {
      while (under.size > 0) await Promise.all(under);
    },
    close: () => agent.destroy(),
  };
}

interface Exchange {
  readonly agent: Agent;
  readonly port: number;
  readonly target: string;
  readonly number: number;
  readonly token: string;
  readonly leavesAfterMs: number | undefined;
}

/** Resolves when it has ended, whichever way. */
function exchangeOf(
  { agent, port, target, number, token, leavesAfterMs }: Exchange,
  ledger: Ledger,
  onWrong: (what: string) => void,
): Promise<void> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${token}`, 'x-request-id': requestId(number) };
    const outgoing = request({ agent, host: '127.0.0.1', port, path: target, headers });
    let hasEnded = false;
    const end = (account: () => void): void => {
      if (hasEnded) return;
      hasEnded = true;
      clearTimeout(timer);
      account();
      resolve();
    };
    const lose = (why: string): void => end(() => onWrong(`${requestId(number)} was lost: ${why}`));
    const leaves = leavesAfterMs !== undefined;
    const timer = setTimeout(
      () => {
        end(() => (leaves ? ledger.leave(number) : onWrong(`${requestId(number)} was not answered in time`)));
        outgoing.destroy();
      },
      leaves ? leavesAfterMs : patienceMs,
    );
    outgoing.on('error', (error) => lose(error.message));
    outgoing.on('response', (incoming) => {
      const pieces: Buffer[] = [];
      incoming.on('data', (piece: Buffer) => pieces.push(piece));
      incoming.on('error', (error) => lose(error.message));
      incoming.on('end', () =>
        end(() => {
          ledger.answer(number, incoming.statusCode ?? 0);
          const wrong = wrongIn(incoming, Buffer.concat(pieces).toString(), target, requestId(number));
          if (wrong !== undefined) onWrong(`${requestId(number)}: ${wrong}`);
        }),
      );
    });
    outgoing.end();
  });
}

/** 401, 206 and redirects never pass; a 429 is the gateway's own. */
const mayBe = new Set([200, 201, 204, 400, 403, 404, 410, 418, 429, 500, 502, 503, 504, 599]);

/** What is wrong with a reply to this request, or `undefined`. */
function wrongIn(
  { statusCode = 0, headers }: IncomingMessage,
  body: string,
  target: string,
  id: string,
): string | undefined {
  if (headers['x-request-id'] !== id) return `has the id ${headers['x-request-id']}`;
  if (!mayBe.has(statusCode)) return `the status ${statusCode}`;
  if (statusCode === 204) return body === '' ? undefined : 'a 204 with a body';
  const type = headers['content-type'] ?? '';
  // A page that the upstream sent with an error: no success looks so.
  if (statusCode >= 400 && !type.includes('json')) return undefined;
  const members = membersOf(body);
  if (members === undefined) return `${statusCode} with a body that is no JSON object`;
  if (type === 'application/problem+json') {
    if (members['code'] === 'internal-error') return 'an internal error';
    return members['requestId'] === id ? undefined : `the problem of ${members['requestId']}`;
  }
  return members['target'] === target
    ? undefined
    : `${statusCode} for ${body.slice(0, 100)}, asked ${target}`;
}

function membersOf(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
