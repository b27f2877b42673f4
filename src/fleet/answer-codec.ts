/**
 * An upstream answer as bytes, and back. Times travel as the store's, so that the age of an answer is the same at each
 * gateway although their clocks differ.
 */

import type { Answer } from '../exchange/exchange.ts';
import type { HeaderFields } from '../http/fields.ts';
import { payloadOf } from '../http/payload.ts';

/** The facts beside the body. */
export interface AnswerHead {
  readonly status: number;
  readonly headers: HeaderFields;
  /** When its last byte arrived, in ms of the store's clock. */
  readonly storeMs: number;
  /** From the attempt to its last byte. */
  readonly durationMs: number;
  /** Wall clock of the gateway that fetched it, at receipt. */
  readonly receivedAt: number;
}

const lengthBytes = 4;

/** Any facts as JSON, then a body. */
export function pack(facts: object, body: Buffer): Buffer {
  const head = Buffer.from(JSON.stringify(facts));
  const length = Buffer.alloc(lengthBytes);
  length.writeUInt32BE(head.length);
  return Buffer.concat([length, head, body]);
}

/** The facts and the body; `undefined` for bytes that were not packed. */
export function unpack(
  bytes: Buffer,
): { readonly facts: Record<string, unknown>; readonly body: Buffer } | undefined {
  if (bytes.length < lengthBytes) return undefined;
  const end = lengthBytes + bytes.readUInt32BE(0);
  if (bytes.length < end) return undefined;
  try {
    const facts: unknown = JSON.parse(bytes.toString('utf8', lengthBytes, end));
    if (typeof facts !== 'object' || facts === null) return undefined;
    return { facts: facts as Record<string, unknown>, body: bytes.subarray(end) };
  } catch {
    return undefined;
  }
}

/** @param storeMs when its last byte arrived, by the store's clock */
export function headOf(answer: Answer, storeMs: number): AnswerHead {
  const { status, headers, sentMs, receivedMs, receivedAt } = answer;
  return { status, headers, storeMs, durationMs: receivedMs - sentMs, receivedAt };
}

/** Clocks are not exact: an answer may seem to come from a moment as near as this in the future. */
export const clockErrorMs = 250;

/**
 * The answer as if this gateway had fetched it. `undefined` where its facts make no sense, as an arrival in the future:
 * the store's clock was set back, and nothing says how old the answer is.
 *
 * @param receivedMs the store's time of its arrival on this gateway's monotonic clock
 */
export function answerOf(
  facts: Record<string, unknown>,
  body: Buffer,
  generation: number,
  receivedMs: number,
  nowMs: number,
): Answer | undefined {
  const { status, headers, durationMs, receivedAt } = facts;
  if (!Number.isInteger(status) || !isAmount(durationMs) || !isAmount(receivedAt)) return undefined;
  if (!isFields(headers) || !Number.isFinite(receivedMs) || receivedMs > nowMs + clockErrorMs) {
    return undefined;
  }
  const arrivedMs = Math.min(receivedMs, nowMs);
  return {
    status: status as number,
    headers,
    body: payloadOf(body),
    sentMs: arrivedMs - durationMs,
    receivedMs: arrivedMs,
    receivedAt,
    generation,
  };
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

function isFields(value: unknown): value is HeaderFields {
  if (typeof value !== 'object' || value === null) return false;
  return Object.values(value).every(
    (field) =>
      typeof field === 'string' ||
      (Array.isArray(field) && field.every((line: unknown) => typeof line === 'string')),
  );
}
