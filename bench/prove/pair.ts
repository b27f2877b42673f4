/** Two gateways that share a store, before one upstream. */
import { setTimeout as sleep } from 'node:timers/promises';
import { accounts, type Subject, type SubjectOptions, startSubject } from './subject.ts';

export interface Pair {
  readonly one: Subject;
  readonly two: Subject;
  /** Resolves once a read that one has made is found by the other. @throws Error where none is in twenty seconds */
  untilShared(): Promise<void>;
  /** Resolves once each knows the same leader at the gate. @throws Error where none leads in twenty seconds */
  untilLed(): Promise<void>;
  stop(): Promise<void>;
}

let number = 0;

/** @param store its address */
export async function startPair(store: string, { settings, ...options }: SubjectOptions = {}): Promise<Pair> {
  const shared = { ...options, settings: { SHARED_STORE: store, CACHE_TTL: '30s', ...settings } };
  const one = await startSubject(shared);
  const two = await startSubject({
    ...shared,
    upstreamUrl: () => options.upstreamUrl?.(one.standIn.url) ?? one.standIn.url,
  });
  return {
    one,
    two,
    async untilShared() {
      for (let tries = 0; tries < 80; tries++) {
        const query = `?shared=${number++}&`;
        for (const subject of [one, two]) await subject.ask(1, { path: `${accounts}${query}` });
        if (one.standIn.requests.filter(({ target }) => target.includes(query)).length === 1) return;
        await sleep(250);
      }
      const said = [one, two].map(({ lines }) => lines.findLast((line) => line.includes('shared store')));
      throw new Error(`what one gateway has read is not found by the other: ${said.join(' ')}`);
    },
    async untilLed() {
      for (let tries = 0; tries < 80; tries++) {
        const [first, second] = await Promise.all(
          [one, two].map(({ status }) => status('sharedStore', 'gate', 'leader')),
        );
        if (first !== null && first === second) return;
        await sleep(250);
      }
      throw new Error('no gateway leads');
    },
    async stop() {
      // The second one first: the upstream ends with the first.
      await two.stop();
      await one.stop();
    },
  };
}
