/** The upstream of every contender, in a process of its own. */
import { standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';

const standIn = await startStandIn({
  accounts: Number(process.env['BENCH_ACCOUNTS'] ?? 15),
  recordRequests: false,
});
process.stdout.write(`${JSON.stringify({ key: standInKey, url: standIn.url, origin: standIn.origin })}\n`);
