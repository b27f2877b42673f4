/**
 * The same callers through the gateway's outbound layers: retry, circuit, gate, and a thin transport. To be run
 * through the whole gateway, replace what `startGatewaySide` returns by one that asks it over HTTP.
 */
import { Pool } from 'undici';
import { GatewayError } from '../../src/errors.ts';
import { compose } from '../../src/layer.ts';
import { Trace } from '../../src/trace.ts';
import { breakCircuit } from '../../src/upstream/circuit.ts';
import type { Answer, HeaderFields, UpstreamRequest } from '../../src/upstream/exchange.ts';
import { type GateSnapshot, paceAttempts } from '../../src/upstream/gate.ts';
import { retryFailures } from '../../src/upstream/retry.ts';
import type { Ending, Side } from './callers.ts';

export interface GatewaySide extends Side {
  snapshot(): GateSnapshot;
}

/** @param deadlineMs REQUEST_TIMEOUT */
export function startGatewaySide(upstream: URL, key: string, deadlineMs: number): GatewaySide {
  const pool = new Pool(upstream.origin, { connections: 64 });
  const gate = paceAttempts({ maxClosedMs: 300_000, baseMs: 500, capMs: 8000 });
  const circuit = breakCircuit({ onOpen: gate.dismiss });
  const send = compose<UpstreamRequest, Answer>(
    [retryFailures({ limit: 4, baseMs: 500, capMs: 8000 }), circuit.layer, gate.layer],
    async (request) => {
      const sentMs = performance.now();
      const { statusCode, headers, body } = await pool.request({
        method: 'GET',
        path: `${upstream.pathname}${request.path}${request.query}`,
        headers: { 'x-api-key': key, accept: 'application/json' },
      });
      const bytes = Buffer.from(await body.arrayBuffer());
      return {
        status: statusCode,
        headers: headers as HeaderFields,
        body: bytes,
        sentMs,
        receivedMs: performance.now(),
        receivedAt: Date.now(),
        generation: 1,
      };
    },
  );
  let count = 0;

  return {
    name: 'through the gateway',
    snapshot: gate.snapshot,
    async ask(caller): Promise<Ending> {
      const nowMs = performance.now();
      const request: UpstreamRequest = {
        operation: 'list-accounts',
        path: '/analytics/accounts/',
        query: `?n=${count++}`,
        headers: {},
        ids: {},
        cacheControl: undefined,
        pragma: undefined,
        claim: {
          signal: new AbortController().signal,
          deadlineMs: nowMs + deadlineMs,
          turn: { name: caller, weight: 1, background: false },
          onChange: () => () => {},
        },
      };
      try {
        const { status } = await send(request, new Trace(String(count), nowMs));
        return { kind: status === 200 ? 'answered' : 'failed' };
      } catch (error) {
        if (!(error instanceof GatewayError) || error.retryAfterMs === undefined) return { kind: 'failed' };
        // As a caller sees it: whole seconds.
        return { kind: 'refused', retryAfterMs: Math.max(1, Math.ceil(error.retryAfterMs / 1000)) * 1000 };
      }
    },
    async close() {
      gate.close();
      await pool.destroy();
    },
  };
}
