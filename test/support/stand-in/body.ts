/** The body a misbehaviour asks for, compressed where it says so. */
import { once } from 'node:events';
import { STATUS_CODES } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip, createZstdCompress } from 'node:zlib';
import type { PreparedAnswer } from '../../../src/demo/specification.ts';
import type { ReceivedRequest } from '../../../src/demo/stand-in.ts';
import type { Coding, Filler, Misbehaviour } from './behaviour.ts';
import { echoBody } from './echo.ts';

export async function bodyOf(
  specified: PreparedAnswer,
  misbehaviour: Misbehaviour,
  status: number,
  request: ReceivedRequest,
): Promise<Buffer | Filler> {
  const plain = plainBody(specified, misbehaviour, status, request);
  if (misbehaviour.compress === undefined) return plain;
  return 'bytes' in plain ? bomb(plain, misbehaviour.compress) : compressed(plain, misbehaviour.compress);
}

/** Each is compressed once: only the compressed bytes are held, and they are few. */
const bombs = new Map<string, Promise<Buffer>>();

function bomb(filler: Filler, codings: readonly Coding[]): Promise<Buffer> {
  const name = `${filler.bytes} ${codings}`;
  const made = bombs.get(name) ?? compressed(filler, codings);
  bombs.set(name, made);
  return made;
}

function plainBody(
  specified: PreparedAnswer,
  misbehaviour: Misbehaviour,
  status: number,
  request: ReceivedRequest,
): Buffer | Filler {
  if (misbehaviour.echo?.in === 'body') return echoBody(misbehaviour.echo, request);
  if (typeof misbehaviour.body === 'string') return Buffer.from(misbehaviour.body);
  if (misbehaviour.body !== undefined) return misbehaviour.body;
  // A 206 is a success that lacks something: the specified body does for it.
  if (status < 300 || status === specified.status) return specified.body;
  return Buffer.from(JSON.stringify({ detail: STATUS_CODES[status] ?? 'Unknown.' }));
}

const compressors: Record<Coding, () => Transform> = {
  gzip: () => createGzip({ level: 9 }),
  deflate: () => createDeflate({ level: 9 }),
  // The best quality takes ten times as long.
  br: () => createBrotliCompress({ params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  zstd: () => createZstdCompress(),
};

async function compressed(body: Buffer | Filler, codings: readonly Coding[]): Promise<Buffer> {
  const chain = codings.map((coding) => compressors[coding]());
  const first = chain[0];
  if (first === undefined) throw new TypeError('no coding to compress with');
  const last = chain.reduce((from, to) => from.pipe(to));
  const collecting = collect(last);
  if ('bytes' in body) {
    const piece = Buffer.alloc(65_536, 'a');
    first.write('"');
    for (let left = body.bytes - 2; left > 0; left -= piece.length) {
      if (!first.write(piece.subarray(0, Math.min(left, piece.length)))) await once(first, 'drain');
    }
    first.end('"');
  } else {
    first.end(body);
  }
  return collecting;
}

async function collect(from: Readable): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of from) pieces.push(piece);
  return Buffer.concat(pieces);
}
