/** `demo --traffic`: three callers that keep asking an upstream with a limit, so that the console moves. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { digestOf, mintToken } from '../callers/token.ts';
import { waitAtMost } from '../exchange/request-context.ts';
import type { RateLimit } from './specification.ts';

/** What the stand-in lets through: less than the callers below ask for. */
export const trafficLimit: RateLimit = { perSecond: 5, burst: 10 };

interface TrafficCaller {
  readonly name: string;
  readonly token: string;
  /** How it asks, for people. */
  readonly habit: string;
  /** How many loops of it ask side by side. */
  readonly loops: number;
  readonly pauseMs: number;
  /** How many different reads it asks for. */
  readonly reads: number;
}

const habits = [
  {
    name: 'dashboard',
    habit: 'the same read four times a second: hits, whatever the others do',
    loops: 1,
    pauseMs: 250,
    reads: 1,
  },
  {
    name: 'reports',
    habit: 'another read every half second',
    loops: 1,
    pauseMs: 500,
    reads: 10_000,
  },
  {
    name: 'export',
    habit: 'greedy: 24 different reads at once, without a pause',
    loops: 24,
    pauseMs: 0,
    reads: 10_000,
  },
] as const;

export interface Traffic {
  /** CALLERS_FILE. */
  readonly file: string;
  /** Who asks, one line each. */
  readonly describe: string;
  /** Begins to ask, at several gateways in turn. */
  start(urls: readonly string[]): void;
  /** Resolves once each caller has had so many answers. */
  answered(count: number): Promise<void>;
  /** Ends all asking, and removes the file. */
  stop(): Promise<void>;
}

export function prepareTraffic(): Traffic {
  const callers: readonly TrafficCaller[] = habits.map((one) => ({ ...one, token: mintToken() }));
  const folder = mkdtempSync(join(tmpdir(), 'analytics-gateway-demo-'));
  const file = join(folder, 'callers.json');
  const entries = callers.map(({ name, token }) => ({ name, tokens: [{ sha256: digestOf(token) }] }));
  writeFileSync(file, JSON.stringify({ callers: entries }), { mode: 0o600 });
  const stopped = new AbortController();
  const answers = new Map(callers.map(({ name }) => [name, 0]));
  let loops: Promise<void>[] = [];
  let onAnswer = (): void => {};

  let asked = 0;

  const ask = async (
    urls: readonly string[],
    { name, token, pauseMs, reads }: TrafficCaller,
  ): Promise<void> => {
    while (!stopped.signal.aborted) {
      const query = reads === 1 ? '' : `?page=${Math.floor(Math.random() * reads)}`;
      const url = urls[asked++ % urls.length];
      const came = await get(`${url}/api/analytics/accounts/${query}`, token, stopped.signal);
      answers.set(name, (answers.get(name) ?? 0) + Number(came));
      onAnswer();
      // A refusal without a wait would make a busy loop of the greedy one.
      await waitAtMost(came ? pauseMs : Math.max(pauseMs, 250), stopped.signal);
    }
  };

  return {
    file,
    describe: callers.map(({ name, habit }) => `  ${name.padEnd(11)}${habit}`).join('\n'),
    start(urls) {
      loops = callers.flatMap((caller) => Array.from({ length: caller.loops }, () => ask(urls, caller)));
    },
    answered(count) {
      return new Promise((resolve) => {
        onAnswer = () => {
          if ([...answers.values()].every((answered) => answered >= count)) resolve();
        };
        onAnswer();
      });
    },
    async stop() {
      stopped.abort();
      await Promise.all(loops);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Whether a 200 came; a failure is as good as a refusal here. */
function get(url: string, token: string, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${token}` };
    const exchange = request(url, { headers, signal }, (response) => {
      response.on('error', () => resolve(false));
      response.on('end', () => resolve(response.statusCode === 200));
      response.resume();
    });
    exchange.on('error', () => resolve(false));
    exchange.end();
  });
}
