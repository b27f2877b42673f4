/** Decodes the body of an answer that came in a content coding, with Node's zlib. */
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
} from 'node:zlib';
import type { UpstreamCoding } from './coding-policy.ts';

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
  take: (bytes: number) => void,
): Promise<Buffer[]> {
  const decoder = decoders[coding]();
  const pieces: Buffer[] = [];
  let codedBytes = 0;
  try {
    for (const chunk of chunks) {
      codedBytes += chunk.length;
      decoder.write(chunk);
    }
    decoder.end();
    for await (const piece of decoder as AsyncIterable<Buffer>) {
      take(piece.length);
      pieces.push(piece);
    }
    // Zlib ends quietly at the end of a coding, whatever comes after it.
    if (decoder.bytesWritten !== codedBytes) throw new Error('bytes after the end of the content coding');
    return pieces;
  } finally {
    decoder.destroy();
  }
}
