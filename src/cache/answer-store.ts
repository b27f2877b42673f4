/**
 * Answers in memory, bounded in bytes: several variants of one read side by side, negative answers and the marks
 * of reads that cannot be shared, all under one bound.
 */
import { LRUCache } from 'lru-cache';
import type { Answer, Encodings, UpstreamRequest } from '../exchange.ts';
import type { Payload } from '../payload.ts';
import type { AnswerPolicy } from './cache-policy.ts';
import { selection, wholeSelection } from './vary-policy.ts';

/** One answer, and which requests it fits. */
export interface Variant {
  readonly answer: Answer;
  readonly policy: AnswerPolicy;
  /** The names in its Vary, sorted. */
  readonly names: readonly string[];
  /** What the request that fetched it said in them; in all its fields for a `policy.wholeRequest`. */
  readonly selection: string;
  /** All that the request which fetched it said. */
  readonly whole: string;
  readonly bytes: number;
  /** When it was last stored or handed out. Monotonic ms. */
  usedMs: number;
  /** No further refresh before this time: the last one failed. Monotonic ms. */
  refreshNotBeforeMs: number;
}

/** All that is held for one read under one key generation. Replaced whole: lru-cache takes a size only with a new value. */
export interface Resource {
  readonly operation: string;
  /** The latest stored first: it wins where several fit (RFC 9111 section 4.1). */
  readonly variants: readonly Variant[];
  /**
   * What requests said whose answers are for one each, and until when nobody queues for those. Monotonic ms.
   * By all that was said: a field that one caller sends ends the sharing for its like alone.
   */
  readonly unshareable: ReadonlyMap<string, number>;
}

export interface AnswerStoreOptions {
  readonly maxBytes: number;
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
  let said = '';
  for (const variant of resource.variants) {
    if (variant.policy.wholeRequest) {
      if (wholeSelection(headers) === variant.selection) return variant;
    } else if (variant.names.length === 0) {
      return variant;
    } else {
      if (names === undefined || !isSameList(names, variant.names)) {
        names = variant.names;
        said = selection(names, headers);
      }
      if (said === variant.selection) return variant;
    }
  }
  return undefined;
}

function isSameList(one: readonly string[], other: readonly string[]): boolean {
  return one === other || (one.length === other.length && one.every((name, index) => name === other[index]));
}

type Asked = Pick<UpstreamRequest, 'operation' | 'headers'>;

/** Keeps answers; what no longer fits goes, the longest unused first. */
export function createAnswerStore({ maxBytes, maxEntryBytes }: AnswerStoreOptions) {
  let evictions = 0;
  const resources = new LRUCache<string, Resource>({
    maxSize: Math.max(1, maxBytes),
    dispose(_resource, _key, reason) {
      if (reason === 'evict') evictions += 1;
    },
  });

  function write(key: string, resource: Resource): void {
    let { variants } = resource;
    const { unshareable } = resource;
    let bytes = sizeOf(key, variants, unshareable);
    while (bytes > maxBytes && variants.length > 0) {
      variants = withoutLeastUsed(variants);
      bytes = sizeOf(key, variants, unshareable);
    }
    if (bytes > maxBytes || (variants.length === 0 && unshareable.size === 0)) {
      resources.delete(key);
    } else {
      resources.set(key, { ...resource, variants }, { size: bytes });
    }
  }

  return {
    get(key: string): Resource | undefined {
      return resources.get(key);
    },

    /** Keeps an answer in the place of those that fit the same request. Returns whether it is kept. */
    put(
      key: string,
      request: Asked,
      answer: Answer,
      policy: AnswerPolicy,
      names: readonly string[],
    ): boolean {
      const whole = wholeSelection(request.headers);
      const said = policy.wholeRequest ? whole : selection(names, request.headers);
      const bytes = variantBytes(answer, said, whole);
      const { variants: held = [], unshareable = noMarks } = resources.peek(key) ?? {};
      // What one odd header brought upon itself takes nothing from those who never sent it.
      const others = policy.wholeRequest
        ? held.filter((one) => !one.policy.wholeRequest || one.whole !== whole)
        : without(held, request.headers);
      if (bytes > Math.min(maxEntryBytes, maxBytes - sizeOf(key, [], unshareable))) {
        // What was there is older than what we may not keep.
        write(key, { operation: request.operation, variants: others, unshareable });
        return false;
      }
      const variant = {
        answer,
        policy,
        names,
        selection: said,
        whole,
        bytes,
        usedMs: performance.now(),
        refreshNotBeforeMs: -Infinity,
      };
      const kept = others.length < maxVariants ? others : withoutLeastUsed(others);
      write(key, { operation: request.operation, variants: [variant, ...kept], unshareable });
      return true;
    },

    /**
     * Forgets what the very same request had fetched; a later answer has taken its place and may not be kept.
     *
     * No more than that: what fits a request by its Vary may serve everybody, and a field that only one caller
     * sends could bring an error upon the read which the others never get. They go on with what they have, for
     * no longer than it allows, and then learn for themselves.
     */
    drop(key: string, headers: UpstreamRequest['headers']): void {
      const resource = resources.peek(key);
      const whole = wholeSelection(headers);
      if (resource === undefined || !resource.variants.some((one) => one.whole === whole)) return;
      write(key, { ...resource, variants: resource.variants.filter((one) => one.whole !== whole) });
    },

    /** Remembers that answers to such requests fit one each (Varnish calls it hit-for-miss). */
    markUnshareable(key: string, request: Asked, untilMs: number): void {
      const { variants = [], unshareable = noMarks } = resources.peek(key) ?? {};
      const marks = new Map(unshareable);
      const whole = wholeSelection(request.headers);
      marks.delete(whole);
      for (const eldest of marks.keys()) if (marks.size >= maxVariants) marks.delete(eldest);
      marks.set(whole, untilMs);
      write(key, { operation: request.operation, variants, unshareable: marks });
    },

    /** An answer that may be shared has come for such a request. */
    unmark(key: string, { headers }: Asked): void {
      const resource = resources.peek(key);
      if (resource === undefined || resource.unshareable.size === 0) return;
      const marks = new Map(resource.unshareable);
      if (marks.delete(wholeSelection(headers))) write(key, { ...resource, unshareable: marks });
    },

    /** The body that a place for codings belongs to, where it is still held. */
    bodyOf(key: string, encoded: Encodings): Payload | undefined {
      return encodedVariant(resources.peek(key), encoded)?.answer.body;
    },

    /** Puts compressed bodies in their place, where the answer is still there and they fit. */
    addEncodings(key: string, encoded: Encodings, br: Buffer | undefined, gzip: Buffer | undefined): void {
      const resource = resources.peek(key);
      const variant = encodedVariant(resource, encoded);
      if (resource === undefined || variant === undefined) return;
      const more = (br?.byteLength ?? 0) + (gzip?.byteLength ?? 0);
      const grown = { ...variant, bytes: variant.bytes + more };
      const variants = resource.variants.map((one) => (one === variant ? grown : one));
      if (grown.bytes > maxEntryBytes || sizeOf(key, variants, resource.unshareable) > maxBytes) return;
      if (br !== undefined) encoded.br = br;
      if (gzip !== undefined) encoded.gzip = gzip;
      write(key, { ...resource, variants });
    },

    /** Forgets all, or one operation's answers. Returns how many reads were held. */
    purge(operation?: string): number {
      let dropped = 0;
      for (const [key, resource] of [...resources.entries()]) {
        if (operation !== undefined && resource.operation !== operation) continue;
        resources.delete(key);
        dropped += 1;
      }
      return dropped;
    },

    snapshot(): { entries: number; bytes: number; maxBytes: number; evictions: number } {
      return { entries: resources.size, bytes: resources.calculatedSize, maxBytes, evictions };
    },
  };
}

export type AnswerStore = ReturnType<typeof createAnswerStore>;

/** Of those used at the same moment the eldest goes; the newest, which stands first, is never the one. */
function withoutLeastUsed(variants: readonly Variant[]): readonly Variant[] {
  let least = variants.at(-1);
  for (const one of variants.toReversed()) if (least === undefined || one.usedMs < least.usedMs) least = one;
  return variants.filter((one) => one !== least);
}

/** Renewals of one answer share their body and the place for its codings. */
function encodedVariant(resource: Resource | undefined, encoded: Encodings): Variant | undefined {
  return resource?.variants.find((one) => one.answer.encoded === encoded);
}

function without(variants: readonly Variant[], headers: UpstreamRequest['headers']): readonly Variant[] {
  return variants.filter((one) => selectVariant({ variants: [one] }, headers) === undefined);
}

function sizeOf(key: string, variants: readonly Variant[], marks: ReadonlyMap<string, number>): number {
  let bytes = resourceOverheadBytes + 2 * key.length;
  for (const said of marks.keys()) bytes += markOverheadBytes + 2 * said.length;
  for (const variant of variants) bytes += variant.bytes;
  return bytes;
}

function variantBytes(answer: Answer, said: string, whole: string): number {
  let bytes = variantOverheadBytes + 2 * (said.length + whole.length) + answer.body.length;
  bytes += (answer.encoded?.br?.byteLength ?? 0) + (answer.encoded?.gzip?.byteLength ?? 0);
  for (const [name, value] of Object.entries(answer.headers)) {
    bytes += fieldOverheadBytes + name.length;
    if (typeof value === 'string') bytes += value.length;
    else for (const line of value) bytes += fieldOverheadBytes + line.length;
  }
  return bytes;
}

/**
 * A body that holds no more memory than its own. Small buffers are cut from a shared slab: kept for long, a
 * hundred bytes would keep eight thousand.
 */
export function compact(body: Payload): Payload {
  if (typeof body === 'string' || body.buffer.byteLength <= body.byteLength + 64) return body;
  const own = Buffer.allocUnsafeSlow(body.byteLength);
  body.copy(own);
  return own;
}
