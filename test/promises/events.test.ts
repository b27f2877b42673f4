import { type IncomingMessage, request } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';
import { formsIn } from '../support/secret-forms.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

interface Listening {
  readonly response: IncomingMessage;
  /** All that came so far. */
  text(): string;
  /** What came of one kind, as JSON. */
  events(kind: string): unknown[];
  readonly ended: Promise<void>;
}

function listen({ gateway }: Pick<TestGateway, 'gateway'>): Promise<Listening> {
  return new Promise((resolve, reject) => {
    const asking = request(`${gateway.adminUrl}/events`, { agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (more: string) => {
        text += more;
      });
      const ended = new Promise<void>((end) => {
        response.on('close', () => end());
      });
      response.on('error', () => {});
      const events = (kind: string): unknown[] =>
        text
          .split('\n\n')
          .slice(0, -1)
          .map((event) => event.split('\ndata: '))
          .flatMap(([name, data = '']) => (name === `event: ${kind}` ? [JSON.parse(data)] : []));
      resolve({ response, text: () => text, events, ended });
    });
    asking.on('error', reject);
    asking.end();
    onTestFinished(() => void asking.destroy());
  });
}

const hasRequests = ({ requests }: { readonly requests: number }): boolean => requests > 0;

describe('the events of the admin listener', () => {
  it('the events of the admin listener tell the history first, then the status again and again', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    await pair.ask(accounts);
    const listening = await listen(pair);
    expect(listening.response.headers['content-type']).toBe('text/event-stream');
    expect(listening.response.headers['cache-control']).toBe('no-store');
    await expect.poll(() => listening.events('status').length).toBeGreaterThan(1);
    expect(listening.text()).toMatch(/^event: history\ndata: \[/);
    const [status] = listening.events('status');
    expect(status).toMatchObject({ health: 'ok', requests: { finished: 1 } });
  });

  it('the events of the admin listener tell each new point of the history, which the gateway keeps for the next console', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    const listening = await listen(pair);
    const counted = async (): Promise<boolean> => {
      // More than one: what comes before the gateway's first look is in no point.
      await pair.ask(accounts);
      return (listening.events('point') as { requests: number }[]).some(hasRequests);
    };
    await expect.poll(counted, { timeout: 20_000, interval: 250 }).toBe(true);
    const next = await listen(pair);
    await expect.poll(() => next.events('history').length).toBe(1);
    const [points] = next.events('history') as [{ requests: number }[]];
    expect(points.some(hasRequests)).toBe(true);
  });

  it('the events of the admin listener end when the gateway stops, and do not hold it up', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    const listening = await listen(pair);
    await pair.gateway.drain();
    await listening.ended;
    // It was ended and not cut.
    expect(listening.response.complete).toBe(true);
  });

  it('answer HEAD at once', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    expect(await pair.askAdmin('/events', { method: 'HEAD' })).toMatchObject({ status: 200 });
  });

  it('the events of the admin listener hold neither the key nor anything that a caller sent', async () => {
    const script = enrol('script');
    const pair = await startWith([script.entry], { ADMIN_PORT: '0' });
    const id = 'an-id-of-the-caller';
    await pair.ask(accounts, { headers: { ...bearer(`${script.token}x`), 'x-request-id': id } });
    const { headers } = await pair.ask('/api/nothing/', { headers: bearer(script.token) });
    const alike = `${headers['x-request-id']}.${id}`;
    await pair.ask('/api/nothing/', { headers: { ...bearer(script.token), 'x-request-id': alike } });
    const listening = await listen(pair);
    await expect.poll(() => listening.events('status').length).toBeGreaterThan(0);
    const [status] = listening.events('status') as [{ requests: { recentProblems: object[] } }];
    expect(status.requests.recentProblems).toMatchObject([
      { caller: 'script', code: 'unknown-operation', requestId: null },
      { caller: 'script', code: 'unknown-operation', requestId: expect.stringMatching(/^\S{16}-\w+$/) },
      { caller: null, code: 'caller-unauthenticated', requestId: null },
    ]);
    expect(formsIn(listening.text(), standInKey)).toEqual([]);
    expect(listening.text()).not.toContain(id);
    expect(listening.text()).not.toContain(script.token);
  });
});
