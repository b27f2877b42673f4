import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, it, vi } from 'vitest';
import type { Authenticated } from '../../src/callers/caller.ts';
import { authenticate } from '../../src/edge/authenticate.ts';
import { CallerLeft } from '../../src/edge/caller-context.ts';
import { InboundRequest } from '../../src/edge/inbound.ts';
import { Trace } from '../../src/exchange/trace.ts';

/** A request whose login is verified as long as the test wants. */
function asking() {
  const socket = {};
  const outgoing = Object.assign(new EventEmitter(), { socket, req: { socket } });
  const incoming = { method: 'GET', url: '/', headers: {}, rawHeaders: [], socket };
  const request = new InboundRequest(
    incoming as unknown as IncomingMessage,
    outgoing as unknown as ServerResponse,
    (connected) => connected,
  );
  const verified = Promise.withResolvers<Authenticated>();
  const next = vi.fn(() => ({ status: 200, fields: [], body: null }));
  const layer = authenticate({ authenticate: () => verified.promise })(next);
  return { outgoing, verified, next, reply: layer(request, new Trace(0)) };
}

it('a request that has ended waits no longer for its login to be verified', async () => {
  const { outgoing, verified, next, reply } = asking();
  outgoing.emit('close');
  await expect(reply).rejects.toBeInstanceOf(CallerLeft);
  verified.resolve({ caller: { name: 'a' } as Authenticated['caller'], by: 'jwt' });
  await verified.promise;
  expect(next).not.toHaveBeenCalled();
});

it('a request whose login was verified goes on, and waits for nothing of its connection', async () => {
  const { outgoing, verified, next, reply } = asking();
  verified.resolve({ caller: { name: 'a' } as Authenticated['caller'], by: 'jwt' });
  expect(await reply).toMatchObject({ status: 200 });
  expect(next).toHaveBeenCalledOnce();
  expect(outgoing.listenerCount('close')).toBe(0);
});
