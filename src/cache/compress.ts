/** Compresses stored bodies in the background, one at a time. */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Answer } from '../exchange.ts';
import { bufferOf, type Payload } from '../payload.ts';
import { fieldValue, hasDirective, parseCacheControl } from './cache-control.ts';

const gzipBody = promisify(gzip);
const brotliBody = promisify(brotliCompress);

/** Below this a coding saves less than its fields cost. */
const minBytes = 1024;

/** Beyond this many in waiting, further bodies stay as they are until somebody wants them again. */
const maxWaiting = 256;

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

/** What came of a body; a coding that saves nothing is left out. */
export type OnCompressed = (br: Buffer | undefined, gzip: Buffer | undefined) => void;

/** What waits in the line holds no body: a job fetches its own when its turn comes. */
interface Job {
  /** `undefined` where the body is held no more: nothing to do. */
  readonly body: () => Payload | undefined;
  readonly done: OnCompressed;
}

/** A line of bodies that wait to be compressed. One at a time: DNS and files share the same few threads. */
export function createCompressor() {
  const waiting: Job[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const held = job.body();
      if (held === undefined) continue;
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
        // No memory for it: the answer stands as it is.
      }
    }
    running = false;
  }

  return {
    /**
     * Takes a body into the line; `false` where too many are in it.
     *
     * @param body gives it when its turn comes: what waits may be evicted, and would then be counted nowhere
     */
    add(body: Job['body'], done: OnCompressed): boolean {
      if (waiting.length >= maxWaiting) return false;
      waiting.push({ body, done });
      if (!running) void run();
      return true;
    },
    /** Bodies in the line. */
    get waiting(): number {
      return waiting.length + (running ? 1 : 0);
    },
    clear(): void {
      waiting.length = 0;
    },
  };
}

// zlib hands out parts of larger buffers; kept for long they must hold no more than their own bytes.
function worthwhile(coded: Buffer, body: Buffer): Buffer | undefined {
  if (coded.byteLength >= body.byteLength) return undefined;
  const own = Buffer.allocUnsafeSlow(coded.byteLength);
  coded.copy(own);
  return own;
}
