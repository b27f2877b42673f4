/**
 * The outbound order, listed once, top-down: what a read passes on its way to the upstream. Knows nothing of
 * callers, Hono or the log.
 */
import { type Cache, type CacheOptions, shareAnswers } from './cache/cache.ts';
import { askAtTurn } from './cache/fetch-shared.ts';
import type { Answer, SignedRequest, UpstreamRequest } from './exchange/exchange.ts';
import { compose, type Handler, type Layer } from './exchange/layer.ts';
import { type Gate, type GateOptions, paceAttempts } from './gate/gate.ts';
import { type AttemptTally, tallyAttempts } from './upstream/attempt-tally.ts';
import { Circuit, type CircuitOptions } from './upstream/circuit.ts';
import { attachKey, type CredentialKeys, checkThrough, retryWithKey } from './upstream/credential.ts';
import { type LinkOptions, Links } from './upstream/links.ts';
import { type RetryOptions, retryFailures } from './upstream/retry.ts';
import { sendUpstream, type TransportOptions } from './upstream/transport.ts';

export interface PipelineOptions {
  readonly cache: CacheOptions;
  readonly links: LinkOptions;
  readonly retry: Omit<RetryOptions, 'isGated'>;
  readonly circuit: CircuitOptions;
  readonly gate: GateOptions;
  readonly keyring: CredentialKeys;
  readonly transport: TransportOptions;
}

export interface Pipeline {
  readonly send: Handler<UpstreamRequest, Answer>;
  /** For the keyring: a read with a key that may not be the one in use, past the gate and nothing else. */
  readonly checkKey: ReturnType<typeof checkThrough>;
  readonly cache: Pick<Cache, 'purge' | 'snapshot'>;
  readonly links: Pick<Links, 'snapshot'>;
  readonly circuit: Pick<Circuit, 'snapshot'>;
  readonly gate: Pick<Gate, 'snapshot'>;
  readonly attempts: Pick<AttemptTally, 'snapshot'>;
  /** Ends everything under way. */
  close(): Promise<void>;
}

type OutboundLayer = Layer<UpstreamRequest, Answer>;

interface OutboundParts {
  readonly cache: { readonly layer: OutboundLayer };
  readonly links: { readonly layer: OutboundLayer };
  readonly retry: OutboundLayer;
  readonly circuit: { readonly layer: OutboundLayer; readonly atTurn: OutboundLayer };
  readonly gate: { readonly layer: OutboundLayer };
  readonly credential: ReturnType<typeof attachKey>;
  readonly transport: { readonly handler: Handler<SignedRequest, Answer> };
}

/** The first listed is the first to see the request. */
export function outboundLayers({ cache, links, retry, circuit, gate, credential, transport }: OutboundParts) {
  return {
    cache: cache.layer, // fresh, stale, joined, miss
    leadLinksBack: links.layer, // no link of an answer leads past the gateway
    retry, // once more after a 429 or a transient failure; p-retry owns the loop
    retryWithKey, // once more where the key was refused, when it is known with which
    circuit: circuit.layer, // the upstream is down: say so at once
    gate: gate.layer, // when, and whose turn
    circuitAtTurn: circuit.atTurn, // the upstream went down while the request waited
    askAtTurn, // another gateway has the answer by now, or asks for it
    credential, // the only holder of the key
    transport: transport.handler, // the only opener of connections
  };
}

export function createPipeline(options: PipelineOptions): Pipeline {
  const cache = shareAnswers(options.cache);
  const links = new Links(options.links);
  const retry = retryFailures({ ...options.retry, isGated: options.gate.maxClosedMs > 0 });
  const circuit = new Circuit(options.circuit);
  const gate = paceAttempts(options.gate);
  const credential = attachKey(options.keyring);
  const attempts = tallyAttempts();
  const transport = sendUpstream({ ...options.transport, tally: attempts });
  const order = outboundLayers({ cache, links, retry, circuit, gate, credential, transport });
  // From here on a request has the key on it.
  const { credential: sign, transport: sendSigned, ...layers } = order;
  return {
    send: compose(Object.values(layers), sign(sendSigned)),
    checkKey: checkThrough(gate.layer, transport.handler),
    cache,
    links,
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
