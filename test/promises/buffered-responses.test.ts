import { connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair } from '../support/gateway.ts';

const large = { body: { bytes: 8_000_000 } };

/** A caller that asks and does not read. */
function deafCaller(port: number, query: string, token?: string): { closed: () => boolean } {
  const authorization = token === undefined ? '' : `Authorization: Bearer ${token}\r\n`;
  const socket = connect(port, '127.0.0.1');
  let isClosed = false;
  socket.pause();
  socket.on('error', () => {});
  socket.on('close', () => {
    isClosed = true;
  });
  socket.write(`GET ${accounts}?${query} HTTP/1.1\r\nHost: localhost\r\n${authorization}\r\n`);
  onTestFinished(() => void socket.destroy());
  return { closed: () => isClosed };
}

describe('unread replies hold no more memory than a limit', () => {
  it('a caller with 18 unread large replies leaves room for a large reply of another caller', async () => {
    const [deaf, good] = [enrol('deaf'), enrol('good')];
    const { ask, standIn, port, logLines } = await startWith([deaf.entry, good.entry], {
      CACHE_TTL: '0s',
      HEADERS_TIMEOUT: '60s',
    });
    standIn.behave(large);
    for (let at = 0; at < 18; at++) deafCaller(port, `deaf=${at}`, deaf.token);
    await expect.poll(() => logLines().filter(({ caller }) => caller === 'deaf').length).toBeGreaterThan(17);
    const headers = { authorization: `Bearer ${good.token}` };
    for (let at = 0; at < 4; at++) {
      const came = await ask(`${accounts}?good=${at}`, { headers });
      expect([came.status, came.body.length]).toEqual([200, 8_000_000]);
    }
    expect(logLines().filter(({ problem }) => problem === 'overloaded')).toEqual([]);
    const unread = logLines().filter(({ reason }) => /unread/.test(String(reason)));
    expect(unread.length).toBeGreaterThan(0);
    expect(unread[0]).toMatchObject({ level: 'warn', caller: 'deaf', bytes: 8_000_000 });
  });

  it('where there is one caller alone, its own oldest unread reply makes room for its next', async () => {
    const { ask, standIn, port, logLines } = await startPair({ CACHE_TTL: '0s', HEADERS_TIMEOUT: '60s' });
    standIn.behave(large);
    for (let at = 0; at < 17; at++) deafCaller(port, `deaf=${at}`);
    await expect.poll(() => logLines().filter(({ status }) => status === 200).length).toBe(17);
    expect((await ask(`${accounts}?late`)).status).toBe(200);
    expect((await ask('/problems/overloaded')).status).toBe(200);
  });
});
