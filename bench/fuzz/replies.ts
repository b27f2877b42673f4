/** Reads what a connection of the gateway gave back, strictly: what is not well-formed HTTP/1.1 is a fault. */

export interface Reply {
  readonly status: number;
  /** By lower-case name. A field that comes twice is joined by a comma. */
  readonly fields: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

export interface Replies {
  readonly replies: readonly Reply[];
  /** What is wrong with the bytes after the last of these. */
  readonly fault: string | undefined;
  /** The bytes end within a reply. */
  readonly isCut: boolean;
}

const statusLine = /^HTTP\/1\.1 ([1-5]\d\d) ([\t\x20-\x7e]*)$/;
const fieldLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*$/;
const headEnd = '\r\n\r\n';
/** RFC 9112 section 6.3: these end with their head. */
const bodiless = new Set([204, 304]);

/** @param mayBeHead some request on the connection may have been a HEAD: its reply has a length and no body */
export function readReplies(bytes: Buffer, mayBeHead: boolean): Replies {
  const replies: Reply[] = [];
  let rest = bytes;
  while (rest.length > 0) {
    if (replies.at(-1)?.fields.get('connection') === 'close')
      return faulty(replies, 'bytes after the last reply');
    const end = rest.indexOf(headEnd, 0, 'latin1');
    if (end === -1) return { replies, fault: undefined, isCut: true };
    const head = readHead(rest.toString('latin1', 0, end));
    if (typeof head === 'string') return faulty(replies, head);
    const { status, fields } = head;
    rest = rest.subarray(end + headEnd.length);
    const isHead = mayBeHead && (rest.length === 0 || rest.toString('latin1', 0, 9) === 'HTTP/1.1 ');
    const taken = lengthOf(status, fields, isHead);
    if (typeof taken === 'string') return faulty(replies, taken);
    if (rest.length < taken) return { replies, fault: undefined, isCut: true };
    replies.push({ status, fields, body: rest.subarray(0, taken) });
    rest = rest.subarray(taken);
  }
  return { replies, fault: undefined, isCut: false };
}

function faulty(replies: readonly Reply[], fault: string): Replies {
  return { replies, fault, isCut: false };
}

function readHead(text: string): Omit<Reply, 'body'> | string {
  const [first = '', ...lines] = text.split('\r\n');
  const status = Number(statusLine.exec(first)?.[1] ?? 0);
  if (status === 0) return `an invalid status line: ${JSON.stringify(first.slice(0, 100))}`;
  const fields = new Map<string, string>();
  for (const line of lines) {
    const [, name = '', value = ''] = fieldLine.exec(line) ?? [];
    if (name === '') return `an invalid field line: ${JSON.stringify(line.slice(0, 100))}`;
    const before = fields.get(name.toLowerCase());
    fields.set(name.toLowerCase(), before === undefined ? value : `${before}, ${value}`);
  }
  return { status, fields };
}

/** How long the body is: the gateway sends whole bodies and no chunks. A text says what is wrong. */
function lengthOf(status: number, fields: ReadonlyMap<string, string>, isHead: boolean): number | string {
  const length = fields.get('content-length');
  if (status < 200) return `an interim response (${status})`;
  if (fields.has('transfer-encoding')) return 'a transfer coding';
  if (bodiless.has(status) || isHead) return 0;
  if (length === undefined || !/^\d+$/.test(length)) return `${status} with the length ${length}`;
  return Number(length);
}
