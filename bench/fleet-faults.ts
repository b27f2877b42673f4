/**
 * Three gateways that share a store, under load, while gateways and store are killed, stopped and emptied at random.
 * Ends with 1 where a request is lost, doubled or answered wrongly.
 *
 *   npm run soak:fleet [-- MINUTES] [--seed N]
 */
import { parseArgs } from 'node:util';
import { runFaults } from './fleet/faults.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: String(Date.now() % 2 ** 31) } },
});
const minutes = Number(positionals[0] ?? 5);
const seed = Number(values.seed);
if (!(minutes > 0) || !Number.isInteger(seed)) {
  throw new TypeError('npm run soak:fleet [-- MINUTES] [--seed WHOLE_NUMBER]');
}
process.stdout.write(`${minutes} minutes, seed ${seed}\n`);
const checks = await runFaults({
  ...{ seconds: minutes * 60, seed, gateways: 3 },
  note: (text) => process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`),
});
process.stdout.write(
  `\n${checks.map(({ text, isMet }) => `${isMet ? 'met   ' : 'MISSED'} ${text}`).join('\n')}\n`,
);
process.exit(checks.every(({ isMet }) => isMet) ? 0 : 1);
