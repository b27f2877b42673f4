/**
 * The outbound order, listed once, top-down: what a read passes on its way to the upstream. Knows nothing of
 * callers, Hono or the log.
 */
import { type Cache, type CacheOptions, shareAnswers } from './cache/cache.ts';
import { askAtTurn } from './cache/fetch-shared.ts';
import type { Answer, UpstreamRequest } from './exchange/exchange.ts';
import { compose, type Handler, type Layer } from './exchange/layer.ts';
import { type Gate, type GateOptions, paceAttempts } from './gate/gate.ts';
import { type AttemptTally, tallyAttempts } from './upstream/attempt-tally.ts';
import { Circuit, type CircuitOptions } from './upstream/circuit.ts';
import { attachKey, type CredentialKeys, probeThrough, retryWithKey } from './upstream/credential.ts';
import { type RetryOptions, retryFailures } from './upstream/retry.ts';
import { sendUpstream, type TransportOptions } from './upstream/transport.ts';

export interface PipelineOptions {
  readonly cache: CacheOptions;
  readonly retry: Omit<RetryOptions, 'isGated'>;
  readonly circuit: CircuitOptions;
  readonly gate: GateOptions;
  readonly keyring: CredentialKeys;
  readonly transport: TransportOptions;
}

export interface Pipeline {
  readonly send: Handler<UpstreamRequest, Answer>;
  readonly cache: Pick<Cache, 'purge' | 'snapshot'>;
  readonly circuit: Pick<Circuit, 'snapshot'>;
  readonly gate: Pick<Gate, 'snapshot'>;
  readonly attempts: Pick<AttemptTally, 'snapshot'>;
  /** Ends everything under way. */
  close(): Promise<void>;
}

interface OutboundParts {
  readonly cache: { readonly layer: OutboundLayer };
  readonly retry: OutboundLayer;
  readonly circuit: { readonly layer: OutboundLayer };
  readonly gate: { readonly layer: OutboundLayer };
}

type OutboundLayer = Layer<UpstreamRequest, Answer>;

/** The first listed is the first to see the request; `credential` and `transport` come last. */
export function outboundLayers({ cache, retry, circuit, gate }: OutboundParts) {
  return {
    cache: cache.layer, // fresh, stale, joined, miss
    retry, // p-retry owns the loop; once more with another key where one was refused
    circuit: circuit.layer, // the upstream is down: say so at once
    gate: gate.layer, // whose flow, and when
  };
}

export function createPipeline(options: PipelineOptions): Pipeline {
  const cache = shareAnswers(options.cache);
  const gate = paceAttempts(options.gate);
  const circuit = new Circuit(options.circuit);
  const credential = attachKey(options.keyring);
  const attempts = tallyAttempts();
  const transport = sendUpstream({ ...options.transport, tally: attempts });
  const retry = retryFailures({ ...options.retry, isGated: options.gate.maxClosedMs > 0 });
  options.keyring.probeWith(probeThrough(gate.layer, transport.handler));
  const layers = outboundLayers({
    cache,
    retry: (next) => retry(retryWithKey(next)),
    circuit,
    gate: { layer: (next) => gate.layer(circuit.atTurn(askAtTurn(next))) },
  });
  // The only holder of the key, and the only opener of connections.
  const send = compose(Object.values(layers), credential(transport.handler));
  return {
    send,
    cache,
    circuit,
    gate,
    attempts,
    async close() {
      cache.close();
      gate.close();
      await transport.close();
    },
  };
}
