import { describe, expect, it } from 'vitest';
import { runFaults } from '../../bench/fleet/faults.ts';
import { redisProgram } from '../support/redis.ts';

// `npm run soak:fleet` does the same for minutes.
describe.skipIf(redisProgram === undefined)('gateways that share a store', () => {
  it.each(['server', 'cluster'] as const)(
    'gateways that share a %s lose, double and mix up no request while gateways and store are killed, stopped and emptied, or slots move',
    async (kind) => {
      const faults: string[] = [];
      const note = (text: string) => faults.push(text);
      const checks = await runFaults({ seconds: 8, seed: 7, gateways: 3, kind, note });
      expect(faults.length).toBeGreaterThan(1);
      // How much goes through in so few seconds depends on the machine.
      const lost = checks.filter(({ isMet, text }) => !isMet && !text.startsWith('goodput'));
      expect(lost).toEqual([]);
    },
    120_000,
  );
});
