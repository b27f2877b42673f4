/** One request in its exact bytes on a connection of its own, and its reply taken apart. */
import type { TestGateway } from './gateway.ts';

export interface RawReply {
  readonly status: number;
  /** By lower-case name; the lines of a repeated field in order. */
  readonly fields: Readonly<Record<string, readonly string[]>>;
  readonly body: string;
}

export interface RawRequest {
  readonly method?: string;
  /** Header lines as they are sent, besides `Connection: close`. */
  readonly lines?: readonly string[];
  readonly host?: string | undefined;
  readonly body?: string;
}

export async function sendRaw(
  { exchange }: Pick<TestGateway, 'exchange'>,
  target: string,
  { method = 'GET', lines = [], host = 'localhost', body = '' }: RawRequest = {},
): Promise<RawReply> {
  const head = [`${method} ${target} HTTP/1.1`, `Host: ${host}`, ...lines, 'Connection: close'];
  return parseReply(await exchange(`${head.join('\r\n')}\r\n\r\n${body}`));
}

function parseReply(text: string): RawReply {
  const end = text.indexOf('\r\n\r\n');
  const [first = '', ...lines] = text.slice(0, end).split('\r\n');
  const fields: Record<string, string[]> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    fields[name] = [...(fields[name] ?? []), line.slice(colon + 1).trim()];
  }
  return { status: Number(first.split(' ')[1]), fields, body: text.slice(end + 4) };
}
