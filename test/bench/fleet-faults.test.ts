import { describe, expect, it } from 'vitest';
import { runFaults } from '../../bench/fleet/faults.ts';
import { redisProgram } from '../support/redis.ts';

// `npm run soak:fleet` does the same for minutes.
describe.skipIf(redisProgram === undefined)('gateways that share a store', () => {
  it('gateways that share a store lose, double and mix up no request while gateways and store are killed, stopped and emptied', async () => {
    const faults: string[] = [];
    const checks = await runFaults({ seconds: 8, seed: 7, gateways: 3, note: (text) => faults.push(text) });
    expect(faults.length).toBeGreaterThan(1);
    expect(checks.filter(({ isMet }) => !isMet)).toEqual([]);
  }, 120_000);
});
