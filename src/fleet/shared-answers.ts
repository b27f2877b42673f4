/**
 * The second level of the cache, and one exchange at a time for each read, in the shared store. What lies there is sealed,
 * so that nothing in it is trusted; a turn to ask the upstream ends by itself when its gateway dies.
 */
import { randomUUID } from 'node:crypto';
import { cacheKey, exactRequestKey } from '../cache/cache-key.ts';
import type {
  LookOptions,
  Publication,
  SharedExchange,
  SharedLook,
  SharedReads,
} from '../cache/shared-reads.ts';
import type { UpstreamRequest } from '../exchange/exchange.ts';
import type { RequestContext } from '../exchange/request-context.ts';
import {
  outcomeKeptMs,
  readAnswer,
  readOutcome,
  type StoredForm,
  writeAnswer,
  writeOutcome,
} from './answer-codec.ts';
import { KnownPurges } from './known-purges.ts';
import type { KeySealing } from './sealing.ts';
import type { SharedStore } from './store.ts';
import { clockErrorMs } from './store-clock.ts';

export interface SharedAnswersOptions {
  readonly store: SharedStore;
  /** What decides how the upstream's answers are read: gateways that differ in it share nothing. */
  readonly scope: string;
  /** Names of operations, and `*` for all: what else is said to be purged is not kept. */
  readonly purgeable: readonly string[];
  /** Of the key that reads are made with now; `undefined` while there is none. */
  sealing(): KeySealing | undefined;
}

export interface SharedAnswersSnapshot {
  /** Answers of other gateways that were found in the store. */
  readonly found: number;
  /** Outcomes of other gateways' exchanges that reads have waited for. */
  readonly joined: number;
  /** Exchanges that this gateway made for all. */
  readonly exchanges: number;
}

/** A gateway that dies while it asks the upstream delays the others by this long. */
const turnMs = 800;
const renewEveryMs = 250;
/** How often a waiting read looks by itself, in case a message was lost or the asking gateway died. */
const lookEveryMs = 150;
const endedKept = 256;
/** A larger body would hold up other calls on the same connection: such reads are made by each gateway. */
const maxSharedBytes = 2 ** 20;
const tooLarge: Publication = { kind: 'not shareable', forMs: 10_000 };
/** As an exchange is named: nothing else of a message is kept, for others may write into the store. */
const idShape = /^[0-9a-f-]{36}$/;

export class SharedAnswers implements SharedReads {
  readonly #store: SharedStore;
  readonly #options: SharedAnswersOptions;
  /** The reads whose turns this gateway has, by the ids of its exchanges. */
  readonly #turns = new Map<string, StoredForm>();
  readonly #waiting = new Map<string, Set<() => void>>();
  /** By the name of the read. */
  readonly #watchers = new Map<string, Set<(exchangeId: string) => void>>();
  /** Exchanges that ended a moment ago: their message may come before a read begins to wait for it. */
  readonly #ended = new Set<string>();
  readonly #purges: KnownPurges;
  /** Purges that the store has not got yet. Until then nothing of it is used. */
  readonly #unpublished = new Map<string, string>();
  readonly #purgeListeners: ((operation: string | undefined) => void)[] = [];
  readonly #counts = { found: 0, joined: 0, exchanges: 0 };
  #renewal: NodeJS.Timeout | undefined;

  constructor(options: SharedAnswersOptions) {
    this.#options = options;
    this.#store = options.store;
    this.#purges = new KnownPurges(options.purgeable);
    this.#store.subscribe(this.#store.name('ended'), (message) => this.#exchangeEnded(message.toString()));
    this.#store.subscribe(this.#store.name('purged'), (message) => {
      const [what = '', id = ''] = message.toString().split(' ');
      this.applyPurges([[what, id]]);
    });
  }

  get inUse(): boolean {
    return this.#store.inUse && this.#unpublished.size === 0 && this.#options.sealing() !== undefined;
  }

  async look(request: UpstreamRequest, options: LookOptions): Promise<SharedLook | undefined> {
    const { mayFind, awaited, mayTake } = options;
    const form = this.#formOf(request);
    if (form === undefined || this.#unpublished.size > 0) return undefined;
    const id = randomUUID();
    const turn = turnText(form, id, this.#storeMs());
    const keys = [
      this.#store.name('answer', form.name),
      this.#store.name('turn', form.name),
      this.#store.name('outcome', awaited ?? id),
      this.#store.name('purges'),
    ];
    const values = [turn, String(turnMs), request.operation, mayFind ? '1' : '0', mayTake ? '1' : '0'];
    const found = await this.#store.run('look', keys, values, (reply: (Buffer | null)[]) => {
      const [sealed, purgedAll, purged, sealedOutcome, holder] = reply;
      this.applyPurges([
        ['*', purgedAll?.toString() ?? ''],
        [request.operation, purged?.toString() ?? ''],
      ]);
      // A purge may have come while the store was asked.
      const isCurrent = (epoch: unknown): boolean =>
        this.#unpublished.size === 0 && this.#purges.isCurrent(epoch, request.operation, this.#storeMs());
      const stored = sealed ? readAnswer(form, sealed, isCurrent) : undefined;
      const outcome =
        sealedOutcome && awaited !== undefined
          ? readOutcome(form, awaited, sealedOutcome, stored, isCurrent)
          : undefined;
      return { epoch: this.#purges.epochOf(request.operation), stored, outcome, holder: holder?.toString() };
    });
    if (found === undefined) return undefined;
    const { epoch, stored, outcome, holder } = found;
    const isMine = holder === turn;
    if (outcome !== undefined) this.#counts.joined += 1;
    else if (stored !== undefined && stored !== 'not shareable') this.#counts.found += 1;
    return {
      stored,
      outcome,
      exchange: isMine ? this.#begin(form, id, epoch) : undefined,
      other: isMine ? undefined : this.#holderIn(form, holder),
    };
  }

  /** The exchange that has the turn; `undefined` for what no gateway has signed a moment ago, and one that has ended. */
  #holderIn(form: StoredForm, text = ''): string | undefined {
    const [id = '', signedMs] = text.split(' ');
    const ageMs = (this.#storeMs() ?? Number.NaN) - Number(signedMs);
    const isYoung = ageMs >= -clockErrorMs && ageMs <= turnMs + clockErrorMs;
    if (!isYoung || !idShape.test(id) || this.#ended.has(id)) return undefined;
    return form.sealing.isSigned(`turn ${form.name}`, text) ? id : undefined;
  }

  wait(exchangeId: string, context: RequestContext): Promise<void> {
    if (this.#ended.has(exchangeId) || context.ended !== undefined) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(exchangeId) ?? new Set();
    this.#waiting.set(exchangeId, waiting);
    const done = (): void => {
      clearTimeout(timer);
      context.unwatch(watcher);
      waiting.delete(done);
      if (waiting.size === 0) this.#waiting.delete(exchangeId);
      resolve();
    };
    const watcher = { onEnd: done };
    const timer = setTimeout(done, lookEveryMs);
    waiting.add(done);
    context.watch(watcher);
    return promise;
  }

  watch(request: UpstreamRequest, onEnded: (exchangeId: string) => void): () => void {
    const name = this.#formOf(request)?.name ?? '';
    const watchers = this.#watchers.get(name) ?? new Set();
    this.#watchers.set(name, watchers.add(onEnded));
    return () => {
      watchers.delete(onEnded);
      if (watchers.size === 0) this.#watchers.delete(name);
    };
  }

  purge(operation: string | undefined): void {
    this.#unpublished.set(operation ?? '*', randomUUID());
    void this.publishPurges();
  }

  onPurge(listener: (operation: string | undefined) => void): void {
    this.#purgeListeners.push(listener);
  }

  /** Publishes purges that the store has not got: once more after it has been away. */
  async publishPurges(): Promise<void> {
    for (const [what, uuid] of [...this.#unpublished]) {
      const id = await this.#writePurge(what, uuid);
      if (id === undefined || this.#unpublished.get(what) !== uuid) continue;
      this.#purges.made(what, id);
      this.#unpublished.delete(what);
    }
  }

  /** Applies those of the purges that are new here; what the store has is no purge where it is earlier than what is known. */
  applyPurges(purges: Iterable<readonly [what: string, id: string]>): void {
    for (const [what, id] of purges) {
      if (!this.#purges.learn(what, id, this.#storeMs())) continue;
      // Its own, which has come before the reply.
      if (id.endsWith(this.#unpublished.get(what) ?? ' ')) continue;
      for (const listener of this.#purgeListeners) listener(what === '*' ? undefined : what);
    }
  }

  /** Whether the store is to be asked what was purged, so that none of it is lost there. */
  get hasPurges(): boolean {
    return !this.#purges.isEmpty || this.#unpublished.size > 0;
  }

  /** Applies what the store has of every name, and writes back what is missing there: other gateways may not know it. */
  async comparePurges(): Promise<void> {
    await this.publishPurges();
    const { purgeable } = this.#options;
    const purges = await this.#store.run('purges', [this.#store.name('purges')], purgeable, (ids: unknown) =>
      parseIds(ids, purgeable),
    );
    if (purges === undefined) return;
    this.applyPurges(purges);
    for (const [what, said] of purges) {
      const id = this.#purges.missingIn(what, said);
      if (id !== undefined && !this.#unpublished.has(what)) void this.#writePurge(what, '', id, said);
    }
  }

  #writePurge(what: string, ...values: readonly string[]): Promise<string | undefined> {
    const [uuid = '', ...writtenBack] = values;
    const all = [what, uuid, this.#store.name('purged'), ...writtenBack];
    return this.#store.run('purge', [this.#store.name('purges')], all, (reply: Buffer | null) =>
      String(reply),
    );
  }

  #storeMs(): number | undefined {
    return this.#store.clock.at(performance.now());
  }

  snapshot(): SharedAnswersSnapshot {
    return { ...this.#counts };
  }

  close(): void {
    clearInterval(this.#renewal);
    this.#renewal = undefined;
    for (const id of this.#turns.keys()) this.#release(id);
  }

  #formOf(request: UpstreamRequest): StoredForm | undefined {
    const current = this.#options.sealing();
    if (current === undefined) return undefined;
    const { sealing, generation } = current;
    // The very same request: what the upstream says in Vary then needs no look at a second record.
    const read = [this.#options.scope, cacheKey(request, undefined), exactRequestKey(request.headers)];
    const name = sealing.nameOf(read.join('\n'));
    return { name, sealing, generation, clock: this.#store.clock };
  }

  #begin(form: StoredForm, id: string, epoch: string): SharedExchange {
    this.#turns.set(id, form);
    this.#renewal ??= setInterval(() => this.#renewTurns(), renewEveryMs).unref();
    return {
      publish: (publication) => {
        this.#counts.exchanges += 1;
        try {
          this.#write(form, id, epoch, publication);
        } finally {
          this.#release(id);
        }
      },
      release: () => this.#release(id),
    };
  }

  /** Commands reach the store in the order in which they were given: what is written is there before the turn ends. */
  #write(form: StoredForm, id: string, epoch: string, wanted: Publication): void {
    const publication = bodyBytes(wanted) > maxSharedBytes ? tooLarge : wanted;
    const answerName = this.#store.name('answer', form.name);
    const answer = writeAnswer(form, epoch, publication, performance.now());
    if (answer !== undefined) this.#set(answerName, answer.bytes, answer.forMs);
    else if (publication.kind === 'outcome' && publication.replaces) {
      void this.#store.call((client) => client.del(answerName));
    }
    const outcome = writeOutcome(form, id, epoch, publication);
    if (outcome !== undefined) this.#set(this.#store.name('outcome', id), outcome, outcomeKeptMs);
  }

  #set(name: string, bytes: Buffer, forMs: number): void {
    void this.#store.call((client) =>
      client.set(name, bytes, { expiration: { type: 'PX', value: Math.ceil(forMs) } }),
    );
  }

  #release(id: string): void {
    const name = this.#turns.get(id)?.name;
    if (name === undefined) return;
    this.#turns.delete(id);
    if (this.#turns.size === 0) {
      clearInterval(this.#renewal);
      this.#renewal = undefined;
    }
    void this.#store.run('release', [this.#store.name('turn', name)], [id, this.#store.name('ended'), name]);
    // The message that comes back is then no news.
    this.#exchangeEnded(`${id} ${name}`);
  }

  #renewTurns(): void {
    for (const [id, form] of this.#turns) {
      const values = [id, String(turnMs), turnText(form, id, this.#storeMs())];
      void this.#store.run('renew', [this.#store.name('turn', form.name)], values);
    }
  }

  #exchangeEnded(message: string): void {
    const [id = '', name = ''] = message.split(' ');
    if (!idShape.test(id) || this.#ended.has(id)) return;
    this.#ended.add(id);
    for (const oldest of this.#ended) if (this.#ended.size > endedKept) this.#ended.delete(oldest);
    for (const done of [...(this.#waiting.get(id) ?? [])]) done();
    for (const onEnded of [...(this.#watchers.get(name) ?? [])]) onEnded(id);
  }
}

/**
 * A turn as it lies in the store, signed with its time: another program cannot keep one, nor put one back, and so hold up
 * the read.
 */
function turnText({ sealing, name }: StoredForm, id: string, storeMs: number | undefined): string {
  return sealing.sign(`turn ${name}`, `${id} ${storeMs}`);
}

function bodyBytes(publication: Publication): number {
  if (publication.kind === 'stored') return publication.answer.body.length;
  if (publication.kind !== 'outcome' || publication.outcome.kind === 'failed') return 0;
  return publication.outcome.answer.body.length;
}

/** @throws TypeError where these are not the ids that were asked for */
function parseIds(ids: unknown, purgeable: readonly string[]): [what: string, id: string][] {
  if (!Array.isArray(ids) || ids.length !== purgeable.length) throw new TypeError('no list of ids');
  return ids.map((id: unknown, at) => [purgeable[at] ?? '', Buffer.isBuffer(id) ? id.toString() : '']);
}
