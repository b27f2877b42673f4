import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, expect, it, vi } from 'vitest';
import { createCallers } from '../../bench/soak/callers.ts';
import { checksOf, type Observed } from '../../bench/soak/checks.ts';
import { openLedger, requestId } from '../../bench/soak/ledger.ts';
import { descriptorsOf, floorsOf, slopeOf } from '../../bench/soak/trend.ts';

const line = (number: number, status = 200): string =>
  JSON.stringify({ level: 'info', msg: 'request', requestId: requestId(number), status });

describe('the soak’s ledger', () => {
  it('the soak’s ledger adds up where each answer has one line with its status and each leaver at most one', () => {
    const ledger = openLedger();
    ledger.answer(ledger.send(), 200);
    ledger.leave(ledger.send());
    ledger.leave(ledger.send());
    ledger.read(line(0));
    ledger.read(line(1, 499));
    expect(ledger.faults()).toEqual([]);
    expect(ledger.totals).toMatchObject({ sent: 3, answered: 1, left: 2, lines: 2, aborted: 1 });
  });

  it('the soak’s ledger finds an answer without a line, two lines, another status, a lost request and a strange line', () => {
    const ledger = openLedger();
    for (let number = 0; number < 4; number++) ledger.send();
    for (const number of [0, 1, 2]) ledger.answer(number, 200);
    ledger.read(line(1));
    ledger.read(line(1));
    ledger.read(line(2, 502));
    ledger.read(line(9));
    ledger.read('no JSON');
    expect(ledger.faults()).toEqual([
      expect.stringContaining('was not sent'),
      expect.stringContaining('no JSON'),
      'soak-0: answered with 200, 0 lines',
      'soak-1: answered with 200, 2 lines',
      'soak-2: answered with 200, logged 502',
      'soak-3 has no end',
    ]);
  });

  it('the soak’s ledger takes an error in the log for a fault, but for the report of an answer with the key in it', () => {
    const ledger = openLedger();
    ledger.read(JSON.stringify({ level: 'error', kind: 'leak', msg: 'held the key' }));
    expect(ledger.faults()).toEqual([]);
    ledger.read(JSON.stringify({ level: 'error', msg: 'a request could not be answered' }));
    expect(ledger.faults()).toHaveLength(1);
  });
});

it('the soak’s callers ask for each read once before the soak begins, a few at a time', async () => {
  const asked: string[] = [];
  let atOnce = 0;
  let most = 0;
  const server = createHttpServer((incoming, outgoing) => {
    asked.push(incoming.url ?? '');
    most = Math.max(most, ++atOnce);
    const headers = { 'content-type': 'application/json', 'x-request-id': incoming.headers['x-request-id'] };
    setImmediate(() => {
      atOnce -= 1;
      outgoing.writeHead(200, headers).end(JSON.stringify({ target: incoming.url }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const ledger = openLedger();
  const wrong: string[] = [];
  const targets = Array.from({ length: 100 }, (_, at) => `/read/${at}`);
  const callers = createCallers({
    ...{ port: (server.address() as AddressInfo).port, perSecond: 1, leavingShare: 0, tokens: ['token'] },
    ...{ targets: [], random: Math.random, ledger, onWrong: (what: string) => wrong.push(what) },
  });
  await callers.sendEach(targets);
  callers.close();
  await new Promise((resolve) => server.close(resolve));
  expect(asked.sort()).toEqual([...targets].sort());
  expect(wrong).toEqual([]);
  expect(ledger.totals).toMatchObject({ sent: 100, answered: 100 });
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThan(100);
});

describe('the soak’s checks', () => {
  const samples = (mebibytesPerMinute: number): Observed['samples'] =>
    Array.from({ length: 420 }, (_, second) => ({
      minutes: second / 60,
      // V8's heap goes up and down by some MiB.
      residentMiB: 140 + (second % 30) / 10 + (mebibytesPerMinute * second) / 60,
      descriptors: 60 + (second % 7),
    }));
  const observed: Observed = {
    totals: {
      ...{ sent: 100, answered: 98, left: 2, lines: 99, aborted: 1, byStatus: new Map([[200, 98]]) },
      stopped: { started: 99, finished: 98, aborted: 1 },
    },
    metrics: { started: 99, done: 99, aborted: 1 },
    linesThen: 99,
    wrong: [],
    unaccounted: [],
    upstream: { received: 50, faults: 2, rateLimited: 0, foul: [] },
    samples: samples(0),
    livezMs: [3, 4],
    drain: { sent: 40, answered: 40 },
    exit: 0,
    errors: '',
  };
  const broken = (more: Partial<Observed>): string[] =>
    checksOf({ ...observed, ...more })
      .filter(({ isKept }) => !isKept)
      .map(({ name }) => name);

  it('the soak’s checks are all kept by a gateway that keeps its promises', () => {
    expect(broken({})).toEqual([]);
  });

  it.each<[check: string, more: Partial<Observed>]>([
    ['answers that belong to another request, or lost', { wrong: ['soak-1: 200 for another'] }],
    ['requests without exactly one line', { unaccounted: ['soak-1: 0 lines'] }],
    ['sent = answered + left', { totals: { ...observed.totals, answered: 97 } }],
    ['metrics: started = done = lines', { linesThen: 98 }],
    [
      'at the end: started = finished + aborted = lines',
      { totals: { ...observed.totals, stopped: undefined } },
    ],
    ['foul requests at the upstream', { upstream: { ...observed.upstream, foul: ['GET / with 2 keys'] } }],
    ['answered while it stopped', { drain: { sent: 40, answered: 39 } }],
    ['resident memory, slope', { samples: samples(3) }],
    ['the event loop answers /livez', { livezMs: [3, undefined] }],
    ['the event loop answers /livez', { livezMs: [3, 2_001] }],
    ['exit status after SIGTERM', { exit: 1 }],
    ['standard error', { errors: '(node:1) Warning' }],
  ])('the soak’s check “%s” fails for a gateway that breaks its promise', (check, more) => {
    expect(broken(more)).toEqual([check]);
  });

  it('the soak’s checks do not take a burst for growth', () => {
    const bursts = samples(0).map((sample) => ({
      ...sample,
      descriptors: sample.minutes > 6 && Math.round(sample.minutes * 60) % 10 < 8 ? 200 : sample.descriptors,
    }));
    expect(broken({ samples: bursts })).toEqual([]);
    expect(floorsOf(bursts, ({ descriptors }) => descriptors)).toHaveLength(42);
  });

  it('a slope of the soak is that of the line which fits best', () => {
    expect(slopeOf([])).toBe(0);
    expect(
      slopeOf([
        [0, 1],
        [1, 3],
        [2, 5],
      ]),
    ).toBeCloseTo(2);
    expect(
      slopeOf([
        [0, 0],
        [1, 3],
        [2, 0],
        [3, 3],
      ]),
    ).toBeCloseTo(0.6);
  });
});

describe.skipIf(process.platform !== 'linux')('the descriptors that the soak counts', () => {
  it('the descriptors that the soak counts are those of connections that only this side still holds', async () => {
    const held: Socket[] = [];
    const server = createServer({ allowHalfOpen: true }, (socket) => held.push(socket.resume()));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const before = descriptorsOf(process.pid);
    const peer = connect((server.address() as AddressInfo).port, '127.0.0.1');
    await vi.waitFor(() => expect(held).toHaveLength(1));
    expect(descriptorsOf(process.pid)).toBe(before);
    // The peer has ended its side, the server keeps its own: what a leak looks like. The peer's end counts as well.
    peer.end();
    await vi.waitFor(() => expect(descriptorsOf(process.pid)).toBe(before + 2));
    held[0]?.destroy();
    peer.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
});
