/**
 * HTTP/1.1 as RFC 9112 has it, with no leniency at all, and nothing in common with the gateway's parser: what a sender's
 * bytes say, or that they say nothing that all receivers agree on.
 */

export interface StrictRequest {
  readonly method: string;
  readonly target: string;
}

/** What a sender's bytes say. */
export interface StrictReading {
  readonly requests: readonly StrictRequest[];
  /** How they end: after a whole message, within one, or with bytes that are no message. */
  readonly end: 'whole' | 'cut' | 'invalid';
  /** Of what is invalid. */
  readonly reason?: string;
}

export interface StrictResponse {
  readonly status: number;
  readonly body: string;
}

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/;
const maxHeadBytes = 1 << 20;

class Invalid extends Error {}
class Cut extends Error {}

interface Field {
  readonly name: string;
  readonly value: string;
}

/** Reads messages off a text in which each character is a byte. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  /** Up to CRLF: a CR or LF by itself is invalid anywhere (RFC 9112 section 2.2). */
  line(): string {
    const end = this.#text.slice(this.#at, this.#at + maxHeadBytes).search(/[\r\n]/);
    if (end < 0) throw new Cut();
    const at = this.#at + end;
    if (this.#text[at] === '\n') throw new Invalid('a bare LF');
    if (at + 1 === this.#text.length) throw new Cut();
    if (this.#text[at + 1] !== '\n') throw new Invalid('a bare CR');
    const line = this.#text.slice(this.#at, at);
    this.#at = at + 2;
    return line;
  }

  fields(): Field[] {
    const fields: Field[] = [];
    for (let line = this.line(); line !== ''; line = this.line()) {
      const colon = line.indexOf(':');
      const [name, value] = [line.slice(0, Math.max(colon, 0)), line.slice(colon + 1)];
      if (!token.test(name)) throw new Invalid(`the field line ${JSON.stringify(line.slice(0, 60))}`);
      if (!fieldValue.test(value)) throw new Invalid(`the value of ${name}`);
      fields.push({ name: name.toLowerCase(), value: value.replace(/^[ \t]+|[ \t]+$/g, '') });
    }
    return fields;
  }

  bytes(count: number): string {
    if (this.#at + count > this.#text.length) throw new Cut();
    this.#at += count;
    return this.#text.slice(this.#at - count, this.#at);
  }

  chunks(): string {
    for (let body = ''; ; ) {
      // A size, and extensions that are tokens or quoted (RFC 9112 section 7.1.1).
      const line = this.line();
      const [, size] =
        /^([0-9A-Fa-f]{1,8})(?:[ \t]*;[ \t]*[!-~]+(?:[ \t]*=[ \t]*(?:[!-~]+|"[\t -~]*"))?)*$/.exec(line) ??
        [];
      if (size === undefined) throw new Invalid(`the chunk line ${JSON.stringify(line.slice(0, 60))}`);
      if (Number.parseInt(size, 16) === 0) {
        this.fields();
        return body;
      }
      body += this.bytes(Number.parseInt(size, 16));
      if (this.line() !== '') throw new Invalid('a chunk that is longer than its size');
    }
  }

  rest(): string {
    return this.bytes(this.#text.length - this.#at);
  }
}

const valuesOf = (fields: readonly Field[], of: string): string[] =>
  fields.filter(({ name }) => name === of).map(({ value }) => value);

/** Reads the body that the fields announce; `undefined` where they announce none (RFC 9112 section 6). */
function readBody(reader: Reader, fields: readonly Field[]): string | undefined {
  const lengths = valuesOf(fields, 'content-length');
  const codings = valuesOf(fields, 'transfer-encoding');
  if (codings.length > 0) {
    if (lengths.length > 0) throw new Invalid('a length and a coding');
    if (codings.length > 1 || codings[0]?.toLowerCase() !== 'chunked') throw new Invalid('an unknown coding');
    return reader.chunks();
  }
  if (lengths.length === 0) return undefined;
  if (lengths.length > 1 || !/^\d{1,15}$/.test(lengths[0] ?? '')) throw new Invalid('the length');
  return reader.bytes(Number(lengths[0]));
}

function readRequest(reader: Reader): StrictRequest {
  const line = reader.line();
  const [, method, target, version] = /^(\S+) ([!-~]+) HTTP\/(1\.[01])$/.exec(line) ?? [];
  if (method === undefined || target === undefined || version === undefined || !token.test(method)) {
    throw new Invalid(`the request line ${JSON.stringify(line.slice(0, 80))}`);
  }
  const fields = reader.fields();
  const hosts = valuesOf(fields, 'host');
  if (hosts.length > 1 || (hosts.length === 0 && version === '1.1')) throw new Invalid('the number of Host');
  if (version !== '1.1' && valuesOf(fields, 'transfer-encoding').length > 0) {
    throw new Invalid('a coding in HTTP/1.0');
  }
  readBody(reader, fields);
  return { method, target };
}

function endOf(error: unknown): { end: 'cut' } | { end: 'invalid'; reason: string } {
  if (error instanceof Cut) return { end: 'cut' };
  if (error instanceof Invalid) return { end: 'invalid', reason: error.message };
  throw error;
}

/** @param bytes all that one side sent, as Latin-1 */
export function readStrictly(bytes: string): StrictReading {
  const reader = new Reader(bytes);
  const requests: StrictRequest[] = [];
  try {
    while (!reader.isAtEnd) requests.push(readRequest(reader));
    return { requests, end: 'whole' };
  } catch (error) {
    return { requests, ...endOf(error) };
  }
}

/**
 * The final responses to requests of these methods; where they end is not told. Two oddities are read as clients may:
 * empty lines before a status line, which change no message (RFC 9110 section 2.4), and a coding in HTTP/1.0, behind
 * which a connection carries nothing more (RFC 9112 section 6.1).
 */
export function readResponses(bytes: string, methods: readonly string[]): StrictResponse[] {
  const reader = new Reader(bytes);
  const responses: StrictResponse[] = [];
  try {
    while (!reader.isAtEnd) {
      let line = reader.line();
      while (line === '') line = reader.line();
      const [, version, status] = /^HTTP\/(1\.[01]) (\d{3})(?: |$)/.exec(line) ?? [];
      const fields = reader.fields();
      if (status === undefined) break;
      if (status.startsWith('1')) continue;
      const isBare = methods[responses.length] === 'HEAD' || status === '204' || status === '304';
      const body = isBare ? '' : (readBody(reader, fields) ?? reader.rest());
      responses.push({ status: Number(status), body });
      if (version === '1.0' && valuesOf(fields, 'transfer-encoding').length > 0) break;
    }
  } catch (error) {
    endOf(error);
  }
  return responses;
}
