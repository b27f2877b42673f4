/** Which gateways there are: each says so once a second, and counts for three. None of them leads. */

import { randomUUID } from 'node:crypto';
import { toTime } from '../exchange/durations.ts';
import type { KeySealing } from './sealing.ts';
import { isWithin } from './shared-record.ts';
import type { SharedStore } from './store.ts';
import { clockErrorMs } from './store-clock.ts';

export interface Member {
  readonly id: string;
  readonly host: string;
  readonly version: string;
  /** By that gateway's clock (ISO 8601). */
  readonly startedAt: string;
  /** Null where it does not tell. */
  readonly figures: MemberFigures | null;
}

/** What a gateway has done since its start, and how many requests wait there for the upstream. */
export type MemberFigures = Readonly<Record<(typeof figureNames)[number], number>>;

const figureNames = ['requests', 'attempts', 'waiting'] as const;

export interface MembershipOptions {
  readonly store: SharedStore;
  readonly host: string;
  readonly version: string;
  readonly startedAt: number;
  figures?(): MemberFigures;
  /** What may be purged: nothing else is read of the purges in the store, whatever others write there. */
  readonly purgeable: readonly string[];
  /** Of the key in use now; `undefined` while there is none. */
  sealing(): KeySealing | undefined;
  /** The last purge of each name as the store has it, or nothing. */
  onPurges(purges: readonly (readonly [what: string, id: string])[]): void;
}

export const heartbeatMs = 1_000;
const heartbeatKeptMs = 3_000;

interface Heard {
  readonly member: Member;
  /** When it said so, signed. */
  readonly proof: string;
}

type Reply = [time: Buffer[], ids: Buffer[], facts: (Buffer | null)[], purges: (Buffer | null)[]];

export class Membership {
  readonly id = randomUUID().slice(0, 8);
  readonly #options: MembershipOptions;
  #members: readonly Member[] = [];
  #sharing = 0;

  constructor(options: MembershipOptions) {
    this.#options = options;
  }

  /** The gateways that were there at the last heartbeat, this one included. */
  get members(): readonly Member[] {
    return this.#members;
  }

  /**
   * How many of them have the same key, and so share its limit, this one included. Each signs what it says with its time:
   * another program cannot make up gateways, of which each would leave less of the limit to the others.
   */
  get sharing(): number {
    return this.#sharing;
  }

  /** Says that this gateway is there, and reads which others are. One round trip. */
  async beat(): Promise<void> {
    const { store, host, version, startedAt, purgeable, onPurges } = this.#options;
    const sealing = this.#options.sealing()?.sealing;
    const proof = sealing?.sign(`gateway ${this.id}`, String(store.clock.at(performance.now())));
    const facts = JSON.stringify({ host, version, startedAt, proof, figures: this.#options.figures?.() });
    const keys = [store.name('gateways'), store.name('purges')];
    const values = [this.id, facts, String(heartbeatKeptMs), store.name('gateway', ''), ...purgeable];
    const sentMs = performance.now();
    const heard = await store.run('heartbeat', keys, values, ([time, ids, said, purges]: Reply) => ({
      time: time.map(Number),
      members: ids.flatMap((id, index) => parseMember(id.toString(), said[index]) ?? []),
      purges: purgeable.map((what, at) => [what, String(purges[at] ?? '')] as const),
    }));
    if (heard === undefined) return;
    store.clock.sample(sentMs, performance.now(), heard.time);
    this.#members = heard.members.map(({ member }) => member);
    const nowMs = store.clock.at(performance.now()) ?? Number.NaN;
    const shares = ({ member, proof }: Heard): boolean =>
      Math.abs(nowMs - Number.parseFloat(proof)) <= heartbeatKeptMs + clockErrorMs &&
      sealing?.isSigned(`gateway ${member.id}`, proof) === true;
    this.#sharing = heard.members.filter(shares).length;
    onPurges(heard.purges);
  }

  /** Says that this gateway goes. */
  async leave(): Promise<void> {
    const { store } = this.#options;
    await Promise.all([
      store.call((client) => client.zRem(store.name('gateways'), this.id)),
      store.call((client) => client.del(store.name('gateway', this.id))),
    ]);
  }
}

/** Nothing in the store is trusted: what does not look like a gateway's facts is ignored. */
function parseMember(id: string, facts: Buffer | null | undefined): Heard | undefined {
  if (!facts || !/^[0-9a-f]{8}$/.test(id)) return undefined;
  try {
    const { host, version, startedAt, proof, figures } = JSON.parse(facts.toString()) as Record<
      string,
      unknown
    >;
    if (typeof host !== 'string' || typeof version !== 'string' || typeof startedAt !== 'number') {
      return undefined;
    }
    // Throws for a number that is no moment.
    const shown = { host: host.slice(0, 64), version: version.slice(0, 32), startedAt: toTime(startedAt) };
    return { member: { id, ...shown, figures: parseFigures(figures) }, proof: String(proof) };
  } catch {
    return undefined;
  }
}

function parseFigures(value: unknown): MemberFigures | null {
  const given = (value ?? {}) as Record<string, unknown>;
  const figures = figureNames.map((name) => [name, given[name]] as const);
  const areCounts = figures.every(([, one]) => isWithin(one, 0, Number.MAX_SAFE_INTEGER));
  return areCounts ? (Object.fromEntries(figures) as MemberFigures) : null;
}
