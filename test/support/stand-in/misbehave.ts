/** One exchange that does not go as specified, from the decision to the last byte. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Exchange } from '../../../src/demo/stand-in.ts';
import { type Behaviour, decide } from './behaviour.ts';
import { deliver } from './delivery.ts';
import { composeMessage } from './message.ts';

/** Rejects only where the behaviour itself fails or asks for the impossible. */
export async function misbehave(exchange: Exchange, behaviour: Behaviour): Promise<void> {
  const { socket, request } = exchange;
  const misbehaviour = decide(behaviour, request) ?? {};
  if (misbehaviour.raw !== undefined) {
    misbehaviour.raw(socket, request);
    exchange.release();
    return;
  }
  const waitMs = misbehaviour.latencyMs ?? exchange.latencyMs;
  if (waitMs > 0) await pause(waitMs, undefined, { ref: false });
  await misbehaviour.until;
  const message = await composeMessage(exchange.specified, misbehaviour, request);
  const outcome = await deliver(
    socket,
    message,
    misbehaviour,
    () => exchange.reset(),
    () => exchange.onStatus(message.status),
  );
  if (outcome === 'gone') exchange.onGone();
  if (outcome === 'stalled') socket.once('close', () => exchange.onGone());
  if (outcome !== 'whole') return;
  exchange.release();
  if (misbehaviour.unsolicited === undefined) return;
  await pause(misbehaviour.unsolicited.afterMs, undefined, { ref: false });
  if (socket.writable) socket.write(misbehaviour.unsolicited.bytes ?? unsolicitedAnswer);
}

/** A whole answer with another caller's data. */
export const unsolicitedAnswer =
  'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n{"meant-for":"no caller here"}';
