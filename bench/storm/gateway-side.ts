/** The same callers through the real gateway, each with its own token and asking over HTTP. */
import { Pool } from 'undici';
import type { CallerPlan, Ending, GateMoment, Side } from './callers.ts';
import { type LogLine, startGatewayProcess } from './gateway-process.ts';

/** @param deadlineMs REQUEST_TIMEOUT */
export async function startGatewaySide(
  upstream: URL,
  key: string,
  deadlineMs: number,
  plans: readonly CallerPlan[],
): Promise<Side> {
  const gateway = await startGatewayProcess(upstream, key, deadlineMs, plans);
  // As many connections as loops: what waits, waits in the gateway.
  const pool = new Pool(gateway.url.origin);
  let count = 0;
  let lines: readonly LogLine[] = [];

  return {
    name: 'through the gateway',
    ask: (caller) => askGateway(pool, `/api/analytics/accounts/?n=${count++}`, gateway.tokens.get(caller)),
    async close() {
      await pool.destroy();
      lines = await gateway.end();
      return summaryOf(lines);
    },
    gate: () => lines.filter(isOfGate).map(momentOf),
  };
}

/** One request, as its caller sees it end. */
export async function askGateway(pool: Pool, path: string, token: string | undefined): Promise<Ending> {
  try {
    const { statusCode, headers, body } = await pool.request({
      method: 'GET',
      path,
      headers: { authorization: `Bearer ${token}`, accept: 'application/json' },
    });
    await body.dump();
    if (statusCode === 200) return { kind: 'answered' };
    const retryAfter = headers['retry-after'];
    if (statusCode !== 429 && statusCode !== 503) return { kind: 'failed' };
    return retryAfter === undefined
      ? { kind: 'failed' }
      : { kind: 'refused', retryAfterMs: Number(retryAfter) * 1000 };
  } catch {
    return { kind: 'failed' };
  }
}

function isOfGate({ msg }: LogLine): boolean {
  return msg === 'gate state changed';
}

function momentOf({ time, to, perSecond }: LogLine): GateMoment {
  return {
    atMs: Number(time),
    to: String(to),
    perSecond: typeof perSecond === 'number' ? perSecond : undefined,
  };
}

/** What the gate did, from its lines in the log. */
function summaryOf(lines: readonly LogLine[]): string {
  const changes = lines.filter(isOfGate).map(momentOf);
  const closings = changes.filter(({ to }) => to === 'closed');
  const learned = changes.findLast(({ perSecond }) => perSecond !== undefined)?.perSecond;
  const rate = learned === undefined ? '' : `; learned pace at the end ${learned.toFixed(1)}/s`;
  return `the gate closed ${closings.length} times${rate}`;
}
