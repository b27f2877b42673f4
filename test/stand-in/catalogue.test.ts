import { Agent, request } from 'undici';
import { expect, it } from 'vitest';
import { everyMisbehaviour } from '../support/stand-in/catalogue.ts';
import { standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

/** Enough for what comes to an end; what stalls has this long. */
const patienceMs = 150;

it('the catalogue has each name once', () => {
  const names = everyMisbehaviour('http://127.0.0.1:1').map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

it('every misbehaviour leaves the stand-in well, and nothing in it fails', async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): number => warnings.push(warning);
  process.on('warning', onWarning);
  const standIn = await startStandIn();
  const agent = new Agent({ headersTimeout: 0, bodyTimeout: 0 });
  const read = async (signal?: AbortSignal): Promise<string> => {
    const answer = await request(`${standIn.url}/analytics/accounts/`, {
      dispatcher: agent,
      headers: { 'x-api-key': standInKey },
      ...(signal && { signal }),
    });
    return `${answer.statusCode} ${(await answer.body.text()).slice(0, 7)}`;
  };
  try {
    for (const { name, behaviour, stalls } of everyMisbehaviour(standIn.origin)) {
      standIn.behave(behaviour);
      const before = standIn.counts.total;
      const outcome = await read(stalls ? AbortSignal.timeout(patienceMs) : undefined).catch(
        (error) => error.name,
      );
      if (stalls) expect(outcome, name).toBe('TimeoutError');
      if (name === 'reset on connecting') expect(outcome, name).toBe('Error');
      expect(standIn.counts.total, name).toBeGreaterThanOrEqual(before);
      standIn.behave(undefined);
      // A connection that holds an answer that was not asked for may break one more read: that is its point.
      const after = await read().catch(() => read());
      if (!/answers? at once|unsolicited/.test(name)) expect(after, name).toBe('200 [{"id":');
    }
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', onWarning);
    await agent.destroy();
    await standIn.close();
  }
});
