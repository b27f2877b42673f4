import { Agent } from 'node:http';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { bearer, enrol, startWith, writeCallersFile } from '../support/callers-files.ts';
import { type FleetMember, startFleet } from '../support/fleet.ts';
import { type AskOptions, accounts, type Came } from '../support/gateway.ts';
import { redisProgram } from '../support/redis.ts';
import type { StandIn } from '../support/stand-in/stand-in.ts';

const patiently = { timeout: 60_000 };
const settings = { CACHE_TTL: '60s', REQUEST_TIMEOUT: '60s' };
const standInOptions = { limit: { perSecond: 20, burst: 5, retryAfter: 'none' as const } };
const readOf = (number: number): string => `${accounts}?read=${number}`;
type Ask = (path: string, options: AskOptions) => Promise<Came>;

/** Asks for these reads on connections that end with the test, answered or not. */
function askAll(ask: Ask, token: string, reads: readonly number[]): void {
  const ended = new AbortController();
  const agent = new Agent({ keepAlive: true });
  onTestFinished(() => {
    ended.abort();
    agent.destroy();
  });
  const options = { headers: bearer(token), signal: ended.signal, agent };
  for (const read of reads) ask(readOf(read), options).catch(() => undefined);
}

const upTo = (count: number) => Array.from({ length: count }, (_, index) => index);
const accepted = ({ requests }: StandIn): number[] =>
  requests.filter(({ status }) => status === 200).map(({ target }) => Number(target.split('read=')[1]));

describe('a caller that asks for the reads of others first, behind 400 of its own', () => {
  it('a caller that asks for the reads of others first does not hold them up: they go with the turns of the caller that joins', async () => {
    const [greedy, dashboard] = [enrol('greedy'), enrol('dashboard')];
    const callers = [greedy.entry, dashboard.entry];
    const { gateway, standIn, ask } = await startWith(callers, settings, standInOptions);
    // The gate is closed until all of them have come.
    standIn.behave({ status: 429, headers: { 'retry-after': '3' } });
    askAll(ask, greedy.token, upTo(400));
    await vi.waitFor(() => expect(gateway.waiting).toBeGreaterThan(380), patiently);
    standIn.behave(undefined);
    const before = accepted(standIn).length;
    const came = await ask(readOf(399), { headers: bearer(dashboard.token) });
    expect(came.headers['cache-status']).toContain('collapsed');
    expect(accepted(standIn).indexOf(399)).toBeLessThan(before + 20);
    expect(accepted(standIn).filter((read) => read === 399)).toHaveLength(1);
  });

  it.skipIf(redisProgram === undefined)(
    'a caller that asks for the reads of others first at another gateway of a fleet does not hold them up either, and they go by their weight',
    async () => {
      const [greedy, dashboard] = [enrol('greedy'), enrol('dashboard', { weight: 10 })];
      const file = writeCallersFile([greedy.entry, dashboard.entry]);
      const { members, standIn } = await startFleet(2, { CALLERS_FILE: file, ...settings }, standInOptions);
      const [first, second] = members as [FleetMember, FleetMember];
      standIn.behave({ status: 429, headers: { 'retry-after': '3' } });
      askAll(first.ask, greedy.token, upTo(400));
      await vi.waitFor(() => expect(first.gateway.waiting).toBeGreaterThan(380), patiently);
      standIn.behave(undefined);
      const before = accepted(standIn).length;
      const wanted = upTo(20).map((index) => 380 + index);
      const headers = bearer(dashboard.token);
      const came = await Promise.all(wanted.map((read) => second.ask(readOf(read), { headers })));
      expect(new Set(came.map(({ status }) => status))).toEqual(new Set([200]));
      const places = wanted.map((read) => accepted(standIn).indexOf(read));
      expect(Math.min(...places)).toBeGreaterThanOrEqual(0);
      // With equal weights it would be 40.
      expect(Math.max(...places)).toBeLessThan(before + 35);
      const twice = wanted.filter(
        (read) => accepted(standIn).indexOf(read) !== accepted(standIn).lastIndexOf(read),
      );
      expect(twice).toEqual([]);
    },
  );
});
