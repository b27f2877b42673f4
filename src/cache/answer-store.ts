/**
 * Answers in memory, bounded in bytes: several variants of one read side by side, negative answers and hit-for-miss
 * marks, all under one bound, of which each flow has a share.
 */
import type { Answer, Encodings, UpstreamRequest } from '../exchange/exchange.ts';
import type { Evictable, FairBytes } from '../exchange/fair-share.ts';
import { ownBytes, type Payload } from '../http/payload.ts';
import { exactRequestKey, selection } from './cache-key.ts';
import type { AnswerPolicy } from './cache-rules.ts';
import { type FlowShare, FlowShares } from './flow-shares.ts';

/** One answer, and which requests it fits. */
export interface Variant {
  readonly answer: Answer;
  readonly policy: AnswerPolicy;
  /** The names in its Vary, sorted. */
  readonly names: readonly string[];
  /** The fetching request's values of these fields; of all its fields where the policy is `exactRequestOnly`. */
  readonly selection: string;
  /** All forwarded fields of the request that fetched it. */
  readonly exactRequest: string;
  /** With its encodings, once they are made. */
  bytes: number;
  /** When it was last stored or served. Monotonic ms. */
  usedMs: number;
  /** No refresh starts before this time: the last one failed. Monotonic ms. */
  refreshNotBeforeMs: number;
}

/**
 * What is stored for one read under one key generation. Never changed, always replaced: lru-cache takes a size only
 * with a new value.
 */
export interface Resource {
  readonly operation: string;
  /** The latest stored first: it wins where several fit (RFC 9111 section 4.1). */
  readonly variants: readonly Variant[];
  /**
   * Requests whose answers fit one request each, and until when they go up without waiting for each other. Monotonic
   * ms. By all forwarded fields: an odd field of one caller ends the sharing for requests with that field alone.
   */
  readonly hitForMiss: ReadonlyMap<string, number>;
}

export interface AnswerStoreOptions {
  /** Everything stored: bodies, fields, keys, encodings, marks. */
  readonly maxBytes: number;
  /** What this store shares `maxBytes` with; left out where it has them alone. */
  readonly sharedBytes?: FairBytes<Evictable> | undefined;
  /** One answer with its fields and encodings; a larger one is passed on and not stored. */
  readonly maxEntryBytes: number;
}

// What an entry costs besides its bytes, measured by bench/cache-memory.ts: objects, map slots, a separate
// allocation for the body.
const resourceOverheadBytes = 400;
const variantOverheadBytes = 900;
const fieldOverheadBytes = 40;

/** A caller that invents field values cannot make one read hold more than this many answers, nor marks. */
const maxVariants = 64;
const markOverheadBytes = 100;

const noMarks: ReadonlyMap<string, number> = new Map();

/** The variant that fits a request, or `undefined`. */
export function selectVariant(
  resource: Pick<Resource, 'variants'>,
  headers: UpstreamRequest['headers'],
): Variant | undefined {
  let names: readonly string[] | undefined;
  let selected = '';
  for (const variant of resource.variants) {
    if (variant.policy.exactRequestOnly) {
      if (exactRequestKey(headers) === variant.selection) return variant;
    } else if (variant.names.length === 0) {
      return variant;
    } else {
      if (names === undefined || !isSameList(names, variant.names)) {
        names = variant.names;
        selected = selection(names, headers);
      }
      if (selected === variant.selection) return variant;
    }
  }
  return undefined;
}

function isSameList(one: readonly string[], other: readonly string[]): boolean {
  return one === other || (one.length === other.length && one.every((name, index) => name === other[index]));
}

type StoredRequest = Pick<UpstreamRequest, 'operation' | 'headers' | 'context'>;

/** Stores answers within `maxBytes`; the least recently used of the flow that holds most are evicted. */
export class AnswerStore implements Evictable {
  /** What several workspaces share is shared in full. */
  readonly own = 0;
  readonly #maxBytes: number;
  readonly #maxEntryBytes: number;
  readonly #resources: FlowShares<Resource>;
  readonly #sharedBytes: FairBytes<Evictable> | undefined;

  constructor({ maxBytes, maxEntryBytes, sharedBytes }: AnswerStoreOptions) {
    this.#maxBytes = maxBytes;
    this.#maxEntryBytes = maxEntryBytes;
    this.#resources = new FlowShares(maxBytes, (key, { variants, hitForMiss }) =>
      sizeOf(key, variants, hitForMiss),
    );
    this.#sharedBytes = sharedBytes;
    sharedBytes?.join(this);
  }

  get held(): number {
    return this.#resources.bytes;
  }

  evict(): void {
    this.#resources.evict();
  }

  /** On behalf of a flow: what several flows use is evicted for none of them. @param nowMs monotonic */
  get(key: string, flow: string, nowMs: number): Resource | undefined {
    return this.#resources.get(key, flow, nowMs);
  }

  /** Stores an answer in the place of those that fit the same request. Returns whether it is stored. */
  put(
    key: string,
    request: StoredRequest,
    answer: Answer,
    policy: AnswerPolicy,
    names: readonly string[],
  ): boolean {
    const { operation, headers } = request;
    const exactRequest = exactRequestKey(headers);
    const selected = policy.exactRequestOnly ? exactRequest : selection(names, headers);
    const bytes = variantBytes(answer, selected, exactRequest);
    const share = this.#resources.shareFor(key, listFlows(request));
    const { variants: held = [], hitForMiss = noMarks } = this.#resources.peek(key) ?? {};
    // An error takes the place of that request's former errors alone: other requests keep what fits them.
    const others = policy.exactRequestOnly
      ? held.filter((one) => !one.policy.exactRequestOnly || one.exactRequest !== exactRequest)
      : held.filter((one) => selectVariant({ variants: [one] }, headers) === undefined);
    if (bytes > this.#maxEntryBytes || !this.#mayHold(share, bytes + sizeOf(key, [], hitForMiss))) {
      // The former answer is older than the one that is too large.
      this.#write(key, { operation, variants: others, hitForMiss }, share);
      return false;
    }
    const usedMs = performance.now();
    const stored = { answer, policy, names, selection: selected, exactRequest, bytes, usedMs };
    const variant = { ...stored, refreshNotBeforeMs: -Infinity };
    const kept = others.length < maxVariants ? others : withoutLeastUsed(others);
    this.#write(key, { operation, variants: [variant, ...kept], hitForMiss }, share);
    return true;
  }

  /**
   * Forgets what the very same request had fetched, after a later answer to it that may not be stored.
   *
   * Other answers that fit the request by their Vary stay: other requests may be served them, and the later answer
   * may be due to a field that only this caller sends.
   */
  drop(key: string, headers: UpstreamRequest['headers']): void {
    const resource = this.#resources.peek(key);
    if (resource === undefined) return;
    const exactRequest = exactRequestKey(headers);
    const variants = resource.variants.filter((one) => one.exactRequest !== exactRequest);
    if (variants.length < resource.variants.length) this.#write(key, { ...resource, variants });
  }

  /** Remembers that answers to such requests fit one request each (hit-for-miss, as Varnish calls it). */
  markHitForMiss(key: string, request: StoredRequest, untilMs: number): void {
    const { operation, headers } = request;
    const { variants = [], hitForMiss = noMarks } = this.#resources.peek(key) ?? {};
    const marks = new Map(hitForMiss);
    const exactRequest = exactRequestKey(headers);
    marks.delete(exactRequest);
    for (const oldest of marks.keys()) if (marks.size >= maxVariants) marks.delete(oldest);
    marks.set(exactRequest, untilMs);
    const share = this.#resources.shareFor(key, listFlows(request));
    this.#write(key, { operation, variants, hitForMiss: marks }, share);
  }

  /** An answer that may be shared has come for such a request. */
  clearHitForMiss(key: string, { headers }: StoredRequest): void {
    const resource = this.#resources.peek(key);
    if (resource === undefined || resource.hitForMiss.size === 0) return;
    const marks = new Map(resource.hitForMiss);
    if (marks.delete(exactRequestKey(headers))) this.#write(key, { ...resource, hitForMiss: marks });
  }

  /** The body that these encodings belong to, where it is still stored. */
  findBody(key: string, encoded: Encodings): Payload | undefined {
    return encodedVariant(this.#resources.peek(key), encoded)?.answer.body;
  }

  /** Adds compressed bodies to an answer, where it is still stored and they fit. */
  addEncodings(key: string, encoded: Encodings, br: Buffer | undefined, gzip: Buffer | undefined): void {
    const resource = this.#resources.peek(key);
    const variant = encodedVariant(resource, encoded);
    if (resource === undefined || variant === undefined) return;
    const { variants, hitForMiss } = resource;
    const addedBytes = (br?.byteLength ?? 0) + (gzip?.byteLength ?? 0);
    if (variant.bytes + addedBytes > this.#maxEntryBytes) return;
    const share = this.#resources.findPlace(key);
    if (share === undefined || !this.#mayHold(share, sizeOf(key, variants, hitForMiss) + addedBytes)) return;
    // The same variant as before: a refresh under way notes on it that it failed.
    variant.bytes += addedBytes;
    if (br !== undefined) encoded.br = br;
    if (gzip !== undefined) encoded.gzip = gzip;
    this.#write(key, resource);
  }

  /** Forgets all, or one operation's answers. Returns how many reads were stored. */
  purge(operation?: string): number {
    let dropped = 0;
    for (const key of this.#resources.keys()) {
      if (operation !== undefined && this.#resources.peek(key)?.operation !== operation) continue;
      this.#resources.delete(key);
      dropped += 1;
    }
    return dropped;
  }

  snapshot(): { entries: number; bytes: number; maxBytes: number; evictions: number } {
    const { size: entries, bytes, evictions } = this.#resources;
    return { entries, bytes, maxBytes: this.#maxBytes, evictions };
  }

  /** Whether one read may take that much: what is written is never evicted to make room for itself. */
  #mayHold(share: FlowShare, bytes: number): boolean {
    return this.#resources.hasRoom(share, bytes) && this.#sharedBytes?.hasRoom(this, bytes) !== false;
  }

  #write(key: string, resource: Resource, share = this.#resources.findPlace(key)): void {
    if (share === undefined) return;
    const { hitForMiss } = resource;
    let { variants } = resource;
    let bytes = sizeOf(key, variants, hitForMiss);
    while (!this.#mayHold(share, bytes) && variants.length > 0) {
      variants = withoutLeastUsed(variants);
      bytes = sizeOf(key, variants, hitForMiss);
    }
    if (!this.#mayHold(share, bytes) || (variants.length === 0 && hitForMiss.size === 0)) {
      this.#resources.delete(key);
    } else {
      this.#resources.set(key, { ...resource, variants }, share);
      this.#sharedBytes?.fit();
    }
  }
}

/** Of all that wait for the answer. */
function listFlows({ context }: StoredRequest): string[] {
  return context.flows.map(({ name }) => name);
}

/** Of those used at the same moment the oldest goes: the latest stored stands first. */
function withoutLeastUsed(variants: readonly Variant[]): readonly Variant[] {
  let least = variants.at(-1);
  for (const one of variants.toReversed()) if (least === undefined || one.usedMs < least.usedMs) least = one;
  return variants.filter((one) => one !== least);
}

/** Renewals of one answer share their body and its encodings. */
function encodedVariant(resource: Resource | undefined, encoded: Encodings): Variant | undefined {
  return resource?.variants.find((one) => one.answer.encoded === encoded);
}

function sizeOf(key: string, variants: readonly Variant[], marks: ReadonlyMap<string, number>): number {
  let bytes = resourceOverheadBytes + 2 * key.length;
  for (const exactRequest of marks.keys()) bytes += markOverheadBytes + 2 * exactRequest.length;
  for (const variant of variants) bytes += variant.bytes;
  return bytes;
}

function variantBytes(answer: Answer, selected: string, exactRequest: string): number {
  let bytes = variantOverheadBytes + 2 * (selected.length + exactRequest.length) + answer.body.length;
  bytes += (answer.encoded?.br?.byteLength ?? 0) + (answer.encoded?.gzip?.byteLength ?? 0);
  for (const [name, value] of Object.entries(answer.headers)) {
    bytes += fieldOverheadBytes + name.length;
    if (typeof value === 'string') bytes += value.length;
    else for (const line of value) bytes += fieldOverheadBytes + line.length;
  }
  return bytes;
}

/**
 * A body that holds no more memory than its own. Small buffers are cut from a shared slab: stored for long, a
 * hundred bytes would hold eight thousand.
 */
export function compact(body: Payload): Payload {
  const isOwn = typeof body === 'string' || body.buffer.byteLength <= body.byteLength + 64;
  return isOwn ? body : ownBytes(body);
}
