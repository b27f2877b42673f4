/** Compresses stored bodies in the background, one at a time. */

import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Answer } from '../exchange/exchange.ts';
import { fieldValue } from '../http/fields.ts';
import { bufferOf, ownBytes, type Payload } from '../http/payload.ts';
import { hasDirective, parseCacheControl } from './cache-control.ts';

const gzipBody = promisify(gzip);
const brotliBody = promisify(brotliCompress);

/** Below this a coding saves less than its fields cost. */
const minBytes = 1024;

/** With this many queued, further bodies stay uncompressed until they are asked for again. */
const maxQueued = 256;

const compressible =
  /^(?:text\/[^;]+|[^;]*[/+](?:json|xml)|application\/(?:x-ndjson|javascript))[\t ]*(?:;|$)/i;

/** Whether an answer may be given in codings at all: such an answer says `Vary: Accept-Encoding`. */
export function mayCompress({ status, headers, body }: Pick<Answer, 'status' | 'headers' | 'body'>): boolean {
  return (
    status >= 200 &&
    body.length >= minBytes &&
    headers['content-encoding'] === undefined &&
    compressible.test(fieldValue(headers['content-type']) ?? '') &&
    // RFC 9110 section 7.7: no-transform forbids it, however it is spelled.
    !hasDirective(parseCacheControl(headers['cache-control']), 'no-transform')
  );
}

/** Gets the compressed bodies; a coding that saves nothing is left out. */
export type OnCompressed = (br: Buffer | undefined, gzip: Buffer | undefined) => void;

/** A queued job holds no body: it fetches its own when its turn comes. */
interface Job {
  /** `undefined` where the body is no longer stored: there is nothing to do. */
  readonly body: () => Payload | undefined;
  readonly done: OnCompressed;
}

/** The last job of any queue: the next begins after it. Queues take turns, each with one job. */
let lastJob: Promise<unknown> = Promise.resolve();

function inTurn<T>(job: () => Promise<T>): Promise<T> {
  const own = lastJob.then(job);
  lastJob = own.catch(() => undefined);
  return own;
}

/** A queue of bodies to compress. One at a time of all queues: DNS and files share the same few threads. */
export function createCompressor() {
  const waiting: Job[] = [];
  let running = false;

  async function compress(job: Job): Promise<void> {
    const held = job.body();
    if (held === undefined) return;
    const body = bufferOf(held);
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: 5,
      [constants.BROTLI_PARAM_SIZE_HINT]: body.byteLength,
      [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
    };
    try {
      const br = await brotliBody(body, { params });
      const zipped = await gzipBody(body);
      job.done(worthwhile(br, body), worthwhile(zipped, body));
    } catch {
      // No memory for it: the answer stays uncompressed.
    }
  }

  async function run(): Promise<void> {
    running = true;
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const next = job;
      await inTurn(() => compress(next));
    }
    running = false;
  }

  return {
    /**
     * Queues a body; `false` where the queue is full.
     *
     * @param body returns it when its turn comes: a body held here after its eviction would be counted nowhere
     */
    add(body: Job['body'], done: OnCompressed): boolean {
      if (waiting.length >= maxQueued) return false;
      waiting.push({ body, done });
      if (!running) void run();
      return true;
    },
    /** Bodies queued, and the one under way. */
    get waiting(): number {
      return waiting.length + (running ? 1 : 0);
    },
    clear(): void {
      waiting.length = 0;
    },
  };
}

// zlib returns parts of larger buffers; stored for long they must hold no more than their own bytes.
function worthwhile(coded: Buffer, body: Buffer): Buffer | undefined {
  return coded.byteLength >= body.byteLength ? undefined : ownBytes(coded);
}
