import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { HeardMessages } from '../../src/fleet/gate-messages.ts';
import { createSealing } from '../../src/fleet/sealing.ts';
import { SharedGate } from '../../src/fleet/shared-gate.ts';
import type { SharedStore } from '../../src/fleet/store.ts';
import type { Queued } from '../../src/gate/fair-queue.ts';
import type { SchedulerOptions, Scheduling } from '../../src/gate/scheduler.ts';

const gateOptions: SchedulerOptions = {
  ...{ maxClosedMs: 300_000, baseMs: 500, capMs: 8_000, initialWindow: 10, maxInFlight: 64 },
  ...{ maxWaiting: 40, maxWaitingPerCaller: 15, random: () => 0.5 },
};
const sealing = createSealing(() => Buffer.alloc(32));
const flow = { name: 'a', weight: 1, background: false };

/** A store in memory: messages come at once, and the first that asks for the lease has it. */
class MemoryStore {
  readonly messages: { channel: string; message: Buffer }[] = [];
  readonly #listeners: { channel: string; listener: (message: Buffer) => void }[] = [];
  #lease: Buffer | null = null;
  #record: Buffer | null = null;
  readonly inUse = true;
  readonly clock = { at: (ms: number) => ms };
  readonly name = (...parts: readonly string[]): string => parts.join(':');

  subscribe(channel: string, listener: (message: Buffer) => void): void {
    this.#listeners.push({ channel, listener });
  }

  async call(command: (client: object) => Promise<unknown>): Promise<unknown> {
    return command({
      publish: async (channel: string, message: Buffer) => {
        this.messages.push({ channel, message });
        this.send(channel, message);
      },
    });
  }

  send(to: string, message: Buffer): void {
    for (const { channel, listener } of this.#listeners) if (channel === to) listener(message);
  }

  async run(
    _script: object,
    _keys: readonly string[],
    values: readonly (string | Buffer)[],
    read: (reply: unknown) => unknown,
  ) {
    const [id = '', , wants, record = ''] = values;
    if (wants === 'take') this.#lease ??= Buffer.from(`${id} 1`);
    if (wants === 'release') this.#lease = null;
    if (record.length > 0) this.#record = Buffer.from(record);
    return read([this.#lease, this.#record]);
  }

  /** What another program reads and writes there. */
  get record(): Buffer | null {
    return this.#record;
  }
  set record(bytes: Buffer | null) {
    this.#record = bytes;
  }
}

interface Member {
  readonly gate: SharedGate;
  readonly scheduler: Scheduling<Queued>;
}

function join(store: MemoryStore, id: string): Member {
  const shared = store as unknown as SharedStore;
  const gate = new SharedGate({
    ...{ store: shared, id, scope: '', gateways: () => 2 },
    sealing: () => ({ sealing, generation: 1 }),
  });
  const scheduler = gate.makeScheduler<Queued>(gateOptions, () => undefined);
  onTestFinished(() => gate.close());
  return { gate, scheduler };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

/** Is told by the upstream to wait for half a minute, and leads. */
async function close({ scheduler }: Member): Promise<void> {
  const permit = scheduler.admit([flow], performance.now());
  if (permit !== undefined) scheduler.settled(permit, { waitMs: 30_000 }, performance.now());
  await settle();
}

describe('a message of another gateway that another program repeats', () => {
  it('a message of another gateway that another program repeats is not followed', async () => {
    const store = new MemoryStore();
    const [leader, other] = [join(store, 'one'), join(store, 'two')];
    await close(leader);
    await vi.waitFor(() => {
      expect(leader.gate.snapshot().role).toBe('leads');
      expect(other.gate.snapshot()).toMatchObject({ role: 'follows', leader: 'one' });
    }, 20_000);
    const [announcement] = store.messages;
    // It leads no longer, and says so.
    await leader.gate.close();
    await settle();
    expect(other.gate.snapshot().leader).not.toBe('one');
    store.send(announcement?.channel ?? '', announcement?.message ?? Buffer.alloc(0));
    expect(other.gate.snapshot().leader).not.toBe('one');
  });

  it('a record that another program puts back into the store after a quarter of an hour says nothing', async () => {
    const store = new MemoryStore();
    const leader = join(store, 'one');
    await close(leader);
    await leader.gate.close();
    const { record } = store;
    expect(record).not.toBeNull();
    const late = join(store, 'two');
    await settle();
    expect(late.scheduler.snapshot(performance.now()).state).toBe('closed');
    store.clock.at = (ms) => ms + 900_000;
    const later = join(store, 'three');
    store.record = record;
    await settle();
    expect(later.scheduler.snapshot(performance.now()).state).toBe('open');
  });

  it.each<[string, string, unknown, unknown, number | undefined, boolean]>([
    ['the next', 'one', 10_000, 6, 10_000, true],
    ['one that was on its way for a moment', 'one', 9_100, 6, 10_000, true],
    ['the same once more', 'one', 10_000, 5, 10_000, false],
    ['an earlier one', 'one', 10_000, 4, 10_000, false],
    ['one of another gateway', 'two', 10_000, 1, 10_000, true],
    ['one of another gateway from long ago', 'two', 8_900, 1, 10_000, false],
    ['one from the future', 'two', 11_100, 1, 10_000, false],
    ['one without a time', 'two', undefined, 1, 10_000, false],
    ['one without a number', 'two', 10_000, undefined, 10_000, false],
    ['one while the time is not known', 'two', 10_000, 1, undefined, false],
  ])('a message of another gateway is read, or not: %s', (_, from, sentMs, sequence, nowMs, isRead) => {
    const heard = new HeardMessages();
    expect(heard.isNew('one', 10_000, 5, 10_000)).toBe(true);
    expect(heard.isNew(from, sentMs, sequence, nowMs)).toBe(isRead);
  });

  it('what is remembered of messages is bounded, however many gateways there were', () => {
    const heard = new HeardMessages();
    for (let id = 0; id < 10_000; id += 1) heard.isNew(String(id), 10_000, 1, 10_000);
    expect(heard.isNew('9999', 10_000, 1, 10_000)).toBe(false);
  });
});
