/** An upstream that sends back what it got, the key with it, in every dress a key has been seen in. */
import type { ReceivedRequest } from '../../../src/demo/stand-in.ts';

const encoders = {
  raw: (text: string) => text,
  base64: (text: string) => Buffer.from(text).toString('base64'),
  // A byte or two in front shift the text to base64's other two alignments.
  'base64-shifted-1': (text: string) => Buffer.from(`~${text}`).toString('base64'),
  'base64-shifted-2': (text: string) => Buffer.from(`~~${text}`).toString('base64'),
  base64url: (text: string) => Buffer.from(text).toString('base64url'),
  hex: (text: string) => Buffer.from(text).toString('hex'),
  'hex-upper': (text: string) => Buffer.from(text).toString('hex').toUpperCase(),
  percent: (text: string) => encodeURIComponent(text),
  'percent-every-byte': (text: string) => Buffer.from(text).toString('hex').replace(/../g, '%$&'),
  json: (text: string) => JSON.stringify(text).slice(1, -1),
  'json-every-character': (text: string) =>
    text.replace(/[\s\S]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`),
};

export type EchoEncoding = keyof typeof encoders;

/** All of them, for tests that try each. */
export const echoEncodings = Object.keys(encoders) as EchoEncoding[];

export interface Echo {
  /** Where it comes back; a field is named by `field`. */
  readonly in: 'body' | 'header' | 'reason';
  /** Default `raw`. */
  readonly as?: EchoEncoding;
  /** All the request's fields (default), or the value of `X-API-Key` alone. */
  readonly of?: 'headers' | 'key';
  /** Default `X-Echo`. */
  readonly field?: string;
}

/** The echoed text. On one line, so that it fits everywhere. */
export function echoText(echo: Echo, request: ReceivedRequest): string {
  return encoders[echo.as ?? 'raw'](echo.of === 'key' ? (request.key ?? '') : linesOf(request));
}

/** A JSON body whose string holds the text as it is: what is JSON-escaped already stays so, once. */
export function echoBody(echo: Echo, request: ReceivedRequest): Buffer {
  const text = echoText(echo, request);
  const escaped = echo.as === 'json' || echo.as === 'json-every-character';
  return Buffer.from(`{"echo":${escaped ? `"${text}"` : JSON.stringify(text)}}`);
}

function linesOf({ rawHeaders }: ReceivedRequest): string {
  const lines: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    lines.push(`${rawHeaders[index]}: ${rawHeaders[index + 1]}`);
  }
  return lines.join('; ');
}
