/** One exchange that does not go as specified, from the decision to the last byte: late, slowly, in part, or not at all. */
import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Exchange } from '../../../src/demo/stand-in.ts';
import { type Behaviour, decide, type Misbehaviour, type Place } from './behaviour.ts';
import { composeMessage, type Message } from './message.ts';

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

/**
 * How it ended: `whole` leaves the connection open for the next request, `ended` means that we ended it,
 * `stalled` that nothing more will come, `gone` that the other side left first.
 */
type Delivery = 'whole' | 'ended' | 'stalled' | 'gone';

type Ending = 'stall' | 'reset' | 'fin';

/** A reset must not overtake what was sent before it. */
const beforeResetMs = 20;

/**
 * @param reset ends the connection with RST, which for TLS only its owner can
 * @param onHead is called when the status has been sent
 */
async function deliver(
  socket: Socket,
  message: Message,
  misbehaviour: Misbehaviour,
  reset: () => void,
  onHead: () => void,
): Promise<Delivery> {
  const ending: Ending | undefined =
    misbehaviour.stallAt !== undefined ? 'stall' : judgeEnding(misbehaviour, message);
  const place = misbehaviour.stallAt ?? misbehaviour.resetAt ?? misbehaviour.finAt ?? 'end';
  const lastByte = ending === undefined ? Number.POSITIVE_INFINITY : offsetOf(place, message);

  let sent = 0;
  for (const { bytes, inHead } of partsOf(message)) {
    if (sent >= lastByte) break;
    const part = bytes.subarray(0, Math.min(bytes.length, lastByte - sent));
    const slowly = misbehaviour.drip !== undefined && (!inHead || misbehaviour.drip.headersToo === true);
    if (!(await (slowly ? drip(socket, part, misbehaviour.drip) : write(socket, part)))) return 'gone';
    sent += part.length;
    if (inHead && part.length === bytes.length) onHead();
  }
  if (ending === 'stall') return 'stalled';
  if (ending === 'reset') {
    if (sent > 0) await pause(beforeResetMs, undefined, { ref: false });
    reset();
  } else if (ending === 'fin') {
    socket.destroySoon();
  }
  return ending === undefined ? 'whole' : 'ended';
}

function* partsOf({ head, body }: Message): Generator<{ bytes: Buffer; inHead: boolean }> {
  yield { bytes: head, inHead: true };
  for (const bytes of body) yield { bytes, inHead: false };
}

function judgeEnding(misbehaviour: Misbehaviour, message: Message): Ending | undefined {
  if (misbehaviour.resetAt !== undefined) return 'reset';
  return misbehaviour.finAt !== undefined || message.closes ? 'fin' : undefined;
}

function offsetOf(place: Place, { head }: Message): number {
  switch (place) {
    case 'connection':
    case 'before-headers':
      return 0;
    case 'in-headers':
      return Math.floor(head.length / 2);
    case 'after-headers':
      return head.length;
    case 'end':
      return Number.POSITIVE_INFINITY;
    default:
      return head.length + place;
  }
}

/** Resolves to whether the bytes could be handed on. */
function write(socket: Socket, bytes: Buffer): Promise<boolean> | boolean {
  if (socket.destroyed || !socket.writable) return false;
  return new Promise((resolve) => {
    const gone = (): void => resolve(false);
    socket.once('close', gone);
    socket.write(bytes, (error) => {
      socket.off('close', gone);
      resolve(!error);
    });
  });
}

async function drip(
  socket: Socket,
  bytes: Buffer,
  { everyMs, bytes: step = 1 }: NonNullable<Misbehaviour['drip']>,
) {
  for (let at = 0; at < bytes.length; at += step) {
    // Before each step and never after the last: the client may send its next request as soon as it has that.
    await pause(everyMs, undefined, { ref: false });
    if (!(await write(socket, bytes.subarray(at, at + step)))) return false;
  }
  return true;
}
