/**
 * The content coding of an upstream's answer: how its body is decoded, and what becomes of its fields.
 *
 * The gateway asks for no coding (`Accept-Encoding: identity`). An upstream, or a CDN before it, may use one all the
 * same: RFC 9110 section 12.5.3 lets it. Then the answer is decoded, because it has to be searched for the key and
 * its callers may not take that coding. `no-transform` does not keep it coded: it binds proxies (RFC 9110 section
 * 7.7), and a gateway answers for the origin (section 3.7), whose coding we have not asked for. The content stays as it
 * is, and the cache makes no coding of its own of such an answer.
 */
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from 'node:zlib';
import { type HeaderFields, opaqueTag } from '../http/fields.ts';
import { GatheredBytes } from '../http/payload.ts';

export type UpstreamCoding = 'gzip' | 'br' | 'deflate' | 'zstd';

/** Names are case-insensitive, and `x-gzip` is gzip (RFC 9110 sections 8.4.1 and 8.4.1.3). */
const codings: ReadonlyMap<string, UpstreamCoding | 'identity'> = new Map([
  ['', 'identity'],
  ['identity', 'identity'],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['br', 'br'],
  ['deflate', 'deflate'],
  ['zstd', 'zstd'],
]);

/** The one coding of an answer; `undefined` where there are several or it is unknown. */
export function codingOf(headers: HeaderFields): UpstreamCoding | 'identity' | undefined {
  const named = headers['content-encoding'];
  if (named === undefined) return 'identity';
  return typeof named === 'string' ? codings.get(named.trim().toLowerCase()) : undefined;
}

/** Digests of the coded bytes (RFC 9530), which are not the bytes that are handed on. */
const digests: ReadonlySet<string> = new Set(['content-digest', 'repr-digest', 'digest', 'content-md5']);

/**
 * The fields of an answer whose body has been decoded.
 *
 * A strong entity tag names the coded bytes and no others (RFC 9110 section 8.8.3), so it becomes a weak one: the
 * decoded body is equivalent and not the same. `If-None-Match` compares weakly (section 13.1.2), so the upstream
 * still recognises it.
 */
export function asIdentity(headers: HeaderFields, bodyBytes: number): HeaderFields {
  const kept = Object.entries(headers).filter(([name]) => name !== 'content-encoding' && !digests.has(name));
  const fields = { ...Object.fromEntries(kept), 'content-length': String(bodyBytes) };
  const { etag } = headers;
  return typeof etag === 'string' ? { ...fields, etag: weak(etag) } : fields;
}

/**
 * The fields of a 304 to a revalidation. Where the tag that was asked about is weak, the strong one that confirms it
 * names the coded bytes again, and becomes weak as before.
 */
export function asAskedAbout(headers: HeaderFields, askedAbout: string | undefined): HeaderFields {
  const { etag } = headers;
  if (askedAbout === undefined || typeof etag !== 'string' || askedAbout !== weak(etag)) return headers;
  return { ...headers, etag: askedAbout };
}

function weak(etag: string): string {
  return `W/${opaqueTag(etag)}`;
}

/** 8 MiB, which every decoder has to support and no encoder may exceed (RFC 9659); zlib's default is 128 MiB. */
const zstdWindowLog = 23;

const decoders = {
  gzip: () => createGunzip(),
  deflate: () => createInflate(),
  br: () => createBrotliDecompress(),
  zstd: () => createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: zstdWindowLog } }),
} as const satisfies Record<UpstreamCoding, unknown>;

/**
 * The decoded bytes. Rejects where they are truncated, corrupt or followed by others.
 *
 * @param take called with the length of each piece before the next one is made; what it throws ends the decoding
 */
export async function decode(
  coding: UpstreamCoding,
  chunks: readonly Buffer[],
  take: (bytes: number) => Promise<void>,
): Promise<GatheredBytes> {
  const decoder = decoders[coding]();
  const decoded = new GatheredBytes();
  let codedBytes = 0;
  try {
    for (const chunk of chunks) {
      codedBytes += chunk.length;
      decoder.write(chunk);
    }
    decoder.end();
    for await (const piece of decoder as AsyncIterable<Buffer>) {
      await take(piece.length);
      decoded.add(piece);
    }
    // Zlib ends quietly at the end of a coding, whatever comes after it.
    if (decoder.bytesWritten !== codedBytes) throw new Error('bytes after the end of the content coding');
    return decoded;
  } finally {
    decoder.destroy();
  }
}
