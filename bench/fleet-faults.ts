/**
 * Three gateways that share a store, under load, while gateways and store are killed, stopped and emptied at random; or
 * three that share a store behind sentinels, whose master is killed twice a minute, or a cluster, in which slots move.
 * Ends with 1 where a request is lost, doubled or answered wrongly.
 *
 *   npm run soak:fleet [-- MINUTES] [--seed N] [--store server | sentinels | cluster]
 */
import { parseArgs } from 'node:util';
import { runFaults, type StoreKind, storeKinds } from './fleet/faults.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    store: { type: 'string', default: 'server' },
  },
});
const minutes = Number(positionals[0] ?? 5);
const seed = Number(values.seed);
if (!(minutes > 0) || !Number.isInteger(seed) || !Object.hasOwn(storeKinds, values.store)) {
  throw new TypeError(
    'npm run soak:fleet [-- MINUTES] [--seed WHOLE_NUMBER] [--store server | sentinels | cluster]',
  );
}
process.stdout.write(`${minutes} minutes, seed ${seed}\n`);
const checks = await runFaults({
  ...{ seconds: minutes * 60, seed, gateways: 3, kind: values.store as StoreKind },
  note: (text) => process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`),
});
process.stdout.write(
  `\n${checks.map(({ text, isMet }) => `${isMet ? 'met   ' : 'MISSED'} ${text}`).join('\n')}\n`,
);
process.exit(checks.every(({ isMet }) => isMet) ? 0 : 1);
