/**
 * What an earlier version wrote into the store, recorded with a key of 32 bytes "a", read by this one. A rolling upgrade has
 * both beside each other. Where a format has to change, its version does, and these show that the old one is ignored.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readAnswer, readOutcome } from '../../src/fleet/answer-codec.ts';
import { parseMessage } from '../../src/fleet/gate-messages.ts';
import { Membership } from '../../src/fleet/membership.ts';
import { createSealing, pack, unpack } from '../../src/fleet/sealing.ts';
import { shareBuckets } from '../../src/fleet/shared-buckets.ts';
import { parseRecord } from '../../src/fleet/shared-record.ts';
import type { SharedStore } from '../../src/fleet/store.ts';
import { bufferOf } from '../../src/http/payload.ts';

type Recorded = Record<
  | 'answer'
  | 'notShareable'
  | 'failed'
  | 'answered'
  | 'announcement'
  | 'report'
  | 'record'
  | 'turn'
  | 'bucket'
  | 'heartbeat',
  string
> & { readonly storeMs: number };

const recorded = JSON.parse(
  readFileSync(new URL('./fixtures/format-1.json', import.meta.url), 'utf8'),
) as Recorded;
const sealing = createSealing(() => Buffer.alloc(32, 'a'));
const keys = { sealing, generation: 1 };
const { storeMs } = recorded;
const clock = { at: () => storeMs, local: (ms: number) => performance.now() + (ms - storeMs) };
const form = { name: 'a-read', sealing, generation: 1, clock };
const id = '00000000-0000-4000-8000-000000000000';
const bytes = (name: Exclude<keyof Recorded, 'storeMs'>): Buffer => Buffer.from(recorded[name], 'base64');
const isCurrent = (epoch: unknown): boolean => epoch === 'epoch';

/** A later format: another first byte, and the same below it. */
const later = (sealed: Buffer): Buffer => Buffer.concat([Buffer.of(2), sealed.subarray(1)]);

const messageIn = (sealed: Buffer) => {
  const plain = sealing.unseal('analytics-gateway:gate:all scope', sealed);
  const { facts, body } = (plain && unpack(plain)) ?? {};
  return { facts, message: body && parseMessage(body.toString()) };
};

/** Gives scripts this reply. */
const storeWith = (reply: (values: readonly (string | Buffer)[]) => unknown): SharedStore =>
  ({
    inUse: true,
    clock,
    name: (...parts: readonly string[]) => parts.join(':'),
    async run(
      _: string,
      _keys: readonly string[],
      values: readonly (string | Buffer)[],
      read: (reply: unknown) => unknown,
    ) {
      return read(reply(values));
    },
  }) as unknown as SharedStore;

describe('what a gateway of an earlier version has written', () => {
  it('is read: answers', () => {
    const answer = readAnswer(form, bytes('answer'), isCurrent);
    if (answer === undefined || answer === 'not shareable') expect.unreachable();
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'application/json' } });
    expect(bufferOf(answer.body).toString()).toBe('{"is":"old"}');
    expect(readAnswer(form, bytes('notShareable'), isCurrent)).toBe('not shareable');
  });

  it('is read: outcomes', () => {
    const answered = readOutcome(form, id, bytes('answered'), undefined, isCurrent);
    expect(answered).toMatchObject({ kind: 'answered', answer: { status: 200 } });
    const failed = readOutcome(form, id, bytes('failed'), undefined, isCurrent);
    expect(failed).toMatchObject({ kind: 'failed', error: { code: 'upstream-timeout' } });
  });

  it('is read: what gateways tell each other of turns', () => {
    const { facts, message } = messageIn(bytes('announcement'));
    expect(facts).toEqual({ sentMs: storeMs, sequence: 7 });
    expect(message).toMatchObject({
      ...{ kind: 'announcement', term: storeMs, from: '0011aabb', resigns: false },
      ...{ record: { state: 'paced', perMs: 0.05 }, shares: { '22334455': 0.5 } },
    });
    expect(messageIn(bytes('report')).message).toMatchObject({
      ...{ kind: 'report', from: '22334455', to: '0011aabb', isFull: true, sentBefore: 4 },
      ended: [
        [1, 'answered'],
        [2, { waitMs: 1_000 }],
      ],
    });
  });

  it('is read: what is known of the limit', () => {
    const plain = sealing.unseal('known scope', bytes('record'));
    expect(parseRecord(JSON.parse(String(plain)))).toMatchObject({ state: 'paced', perMs: 0.05, crowd: 12 });
  });

  it("is read: the turn of a read, a caller's bucket, and which gateways there are", async () => {
    expect(sealing.isSigned('turn a-read', recorded.turn)).toBe(true);
    const written = sealing.sign('bucket x', '1 2').split(' ').length;
    expect(recorded.bucket.split(' ')).toHaveLength(written);
    expect(sealing.isSigned('bucket a-name', recorded.bucket)).toBe(true);
    const membership = new Membership({
      store: storeWith(() => [[Buffer.from('0011aabb')], [Buffer.from(recorded.heartbeat)]]),
      ...{ host: 'here', version: '0', startedAt: 0 },
    });
    const workspace = { name: '', sealing: () => keys };
    membership.join(workspace);
    await membership.beat();
    expect(membership.members).toMatchObject([{ id: '0011aabb', host: 'old', version: '0.1.0' }]);
    expect(membership.sharing(workspace)).toBe(1);
  });
});

describe('what a gateway of a later version has written', () => {
  it('is ignored where its format is another one', () => {
    expect(readAnswer(form, later(bytes('answer')), isCurrent)).toBeUndefined();
    expect(readOutcome(form, id, later(bytes('answered')), undefined, isCurrent)).toBeUndefined();
    expect(messageIn(later(bytes('announcement')))).toEqual({ facts: undefined, message: undefined });
    expect(sealing.unseal('known scope', later(bytes('record')))).toBeUndefined();
  });

  it('is ignored where it says something that this one does not know, and read where it says more', () => {
    const seal = (message: object) =>
      sealing.seal(
        'analytics-gateway:gate:all scope',
        pack({ sentMs: storeMs, sequence: 8 }, Buffer.from(JSON.stringify(message))),
      );
    const { message } = messageIn(bytes('announcement'));
    expect(messageIn(seal({ ...message, kind: 'something new' })).message).toBeUndefined();
    expect(messageIn(seal({ ...message, record: { state: 'another' } })).message).toBeUndefined();
    expect(messageIn(seal({ ...message, more: { than: 'before' } })).message).toMatchObject({
      from: '0011aabb',
    });
  });

  it('takes the place of no bucket: one that is not understood is as good as none', async () => {
    let kept = `v2 12 ${storeMs} of-another-kind`;
    const store = storeWith(([before, next]) => {
      if (before === kept) kept = String(next);
      return Buffer.from(kept);
    });
    const level = await shareBuckets(store, () => keys).take('a', { perSecond: 1, burst: 5 }, 1);
    expect(level).toBeCloseTo(4, 0);
  });
});
