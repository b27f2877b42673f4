/** From the specified answer and a misbehaviour to the bytes of a message. */
import { once } from 'node:events';
import { STATUS_CODES } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip, createZstdCompress } from 'node:zlib';
import type { HeaderLine, PreparedAnswer } from '../../../src/demo/specification.ts';
import type { ReceivedRequest } from '../../../src/demo/stand-in.ts';
import type { Coding, Fields, Filler, Framing, Misbehaviour } from './behaviour.ts';
import { echoBody, echoText } from './echo.ts';

export interface Message {
  readonly status: number;
  /** Informational responses, status line and header section. */
  readonly head: Buffer;
  readonly body: Iterable<Buffer>;
  /** The connection ends where the body does. */
  readonly closes: boolean;
}

const chunkBytes = 1024;

/** Composes what is sent for a request: the specified answer, changed as the misbehaviour says. */
export async function composeMessage(
  specified: PreparedAnswer,
  misbehaviour: Misbehaviour,
  request: ReceivedRequest,
): Promise<Message> {
  const status = misbehaviour.status ?? (misbehaviour.redirectTo === undefined ? specified.status : 302);
  const body = await bodyOf(specified, misbehaviour, status, request);
  // RFC 9110 section 6.4.1: these have no body, and a length would be read as one.
  const bodiless = status === 204 || status === 304 || request.method === 'HEAD';
  const framing = misbehaviour.framing ?? 'length';

  const own: HeaderLine[] = status === specified.status ? [...specified.lines] : [jsonLine];
  own.push(['Date', new Date().toUTCString()]);
  if (!bodiless) own.push(...framingLines(framing, lengthOf(body), misbehaviour));
  if (misbehaviour.compress !== undefined) own.push(['Content-Encoding', misbehaviour.compress.join(', ')]);
  if (misbehaviour.redirectTo !== undefined) own.push(['Location', misbehaviour.redirectTo]);
  if (misbehaviour.echo?.in === 'header')
    own.push([misbehaviour.echo.field ?? 'X-Echo', echoText(misbehaviour.echo, request)]);
  const reason =
    misbehaviour.echo?.in === 'reason'
      ? echoText(misbehaviour.echo, request)
      : (misbehaviour.reason ?? STATUS_CODES[status] ?? '');

  const interim = (misbehaviour.interim ?? []).map((one) => {
    return section(one.status, STATUS_CODES[one.status] ?? '', linesOf(one.headers ?? {}));
  });
  const head = section(status, reason, replaced(own, misbehaviour.headers ?? {}));
  return {
    status,
    // One byte per character: a test may want bytes that are no ASCII in a field.
    head: Buffer.from(interim.join('') + head, 'latin1'),
    body: bodiless ? [] : framed(framing, body, misbehaviour.trailers ?? {}),
    closes: framing === 'until-close' || framing === 'no-last-chunk',
  };
}

const jsonLine: HeaderLine = ['Content-Type', 'application/json'];

function section(status: number, reason: string, lines: readonly HeaderLine[]): string {
  return `HTTP/1.1 ${status} ${reason}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
}

function framingLines(
  framing: Framing,
  bytes: number,
  { claimLength, trailers }: Misbehaviour,
): HeaderLine[] {
  const lines: HeaderLine[] = [];
  if (framing === 'length' || framing === 'length-and-chunked' || claimLength !== undefined) {
    const claimed = claimLength === undefined ? bytes : claimLength(bytes);
    for (const length of [claimed].flat()) lines.push(['Content-Length', String(length)]);
  }
  if (framing === 'until-close') lines.push(['Connection', 'close']);
  else if (framing !== 'length') lines.push(['Transfer-Encoding', 'chunked']);
  if (trailers !== undefined) lines.push(['Trailer', Object.keys(trailers).join(', ')]);
  return lines;
}

function linesOf(fields: Fields): HeaderLine[] {
  return Object.entries(fields).flatMap(([name, value]) =>
    (value === undefined ? [] : [value].flat()).map((one): HeaderLine => [name, one]),
  );
}

function replaced(own: readonly HeaderLine[], fields: Fields): HeaderLine[] {
  const names = new Set(Object.keys(fields).map((name) => name.toLowerCase()));
  return [...own.filter(([name]) => !names.has(name.toLowerCase())), ...linesOf(fields)];
}

function lengthOf(body: Buffer | Filler): number {
  return 'bytes' in body ? body.bytes : body.length;
}

/** The body's bytes, split so that a huge one is never held whole. */
function* pieces(body: Buffer | Filler, bytes: number): Generator<Buffer> {
  if (!('bytes' in body)) {
    for (let at = 0; at < body.length; at += bytes) yield body.subarray(at, at + bytes);
    return;
  }
  const middle = Buffer.alloc(bytes, 'a');
  yield Buffer.from('"');
  for (let left = body.bytes - 2; left > 0; left -= bytes) yield middle.subarray(0, Math.min(left, bytes));
  yield Buffer.from('"');
}

function* framed(framing: Framing, body: Buffer | Filler, trailers: Fields): Generator<Buffer> {
  const bytes = 'bytes' in body ? 65_536 : framing === 'bad-chunk-size' ? 16 : chunkBytes;
  if (framing === 'length' || framing === 'until-close') {
    yield* pieces(body, 65_536);
    return;
  }
  for (const piece of pieces(body, bytes)) {
    yield Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]);
    if (framing === 'bad-chunk-size') {
      yield Buffer.from('xyz\r\nnothing\r\n0\r\n\r\n');
      return;
    }
  }
  if (framing === 'no-last-chunk') return;
  yield Buffer.from(
    `0\r\n${linesOf(trailers)
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('')}\r\n`,
  );
}

/** The body a misbehaviour asks for, compressed where it says so. */
async function bodyOf(
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
