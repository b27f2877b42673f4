/**
 * Which gateways there are: each says so once a second for all its workspaces, and counts for three. None of them leads.
 */

import { randomUUID } from 'node:crypto';
import { toTime } from '../exchange/figures.ts';
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

/** A workspace of this gateway. */
export interface MemberWorkspace {
  /** Empty for the unnamed one. */
  readonly name: string;
  /** Of the key in use now; `undefined` while there is none. */
  sealing(): KeySealing | undefined;
}

export interface MembershipOptions {
  readonly store: SharedStore;
  readonly host: string;
  readonly version: string;
  readonly startedAt: number;
  figures?(): MemberFigures;
}

export const heartbeatMs = 1_000;
const heartbeatKeptMs = 3_000;

interface Heard {
  readonly member: Member;
  /** By workspace: when it said so, signed with the key that it has there. */
  readonly proofs: ReadonlyMap<string, string>;
}

type Reply = [ids: Buffer[], facts: (Buffer | null)[]];

export class Membership {
  readonly id = randomUUID().slice(0, 8);
  readonly #options: MembershipOptions;
  /** How many share it, and since when fewer seem to; on this gateway's monotonic clock. */
  readonly #workspaces = new Map<MemberWorkspace, { count: number; fewerSinceMs: number }>();
  #members: readonly Member[] = [];

  constructor(options: MembershipOptions) {
    this.#options = options;
  }

  /** The gateways that were there at the last heartbeat, this one included. */
  get members(): readonly Member[] {
    return this.#members;
  }

  join(workspace: MemberWorkspace): void {
    this.#workspaces.set(workspace, { count: 0, fewerSinceMs: Number.POSITIVE_INFINITY });
  }

  /**
   * How many of them have the same key for this workspace, and so share its limit, this one included. Each signs what it
   * says with its time: another program cannot make up gateways, of which each would leave less of the limit to the
   * others. Where fewer seem to be there, those before count until they had the time to say so again: the store may have
   * been away, or its clock was set.
   */
  sharing(workspace: MemberWorkspace): number {
    return this.#workspaces.get(workspace)?.count ?? 0;
  }

  /** Says for all workspaces that this gateway is there, and reads which others are. One round trip. */
  async beat(): Promise<void> {
    const { store, host, version, startedAt } = this.#options;
    const time = String(store.clock.at(performance.now()));
    const proofs = [...this.#workspaces.keys()].map(({ name, sealing }) => [
      name,
      sealing()?.sealing.sign(`gateway ${this.id}`, time),
    ]);
    const { '': proof, ...named } = Object.fromEntries(proofs) as Record<string, string | undefined>;
    const figures = this.#options.figures?.();
    const facts = JSON.stringify({ host, version, startedAt, proof, proofs: named, figures });
    const values = [this.id, facts, String(heartbeatKeptMs), store.name('gateway', '')];
    const heard = await store.run('heartbeat', [store.name('gateways')], values, ([ids, said]: Reply) =>
      ids.flatMap((id, index) => parseMember(id.toString(), said[index]) ?? []),
    );
    if (heard === undefined) return;
    this.#members = heard.map(({ member }) => member);
    const heardMs = performance.now();
    const nowMs = store.clock.at(heardMs) ?? Number.NaN;
    for (const [workspace, known] of this.#workspaces) {
      const sealing = workspace.sealing()?.sealing;
      const shares = ({ member, proofs }: Heard): boolean => {
        const proof = proofs.get(workspace.name) ?? '';
        const isYoung = Math.abs(nowMs - Number.parseFloat(proof)) <= heartbeatKeptMs + clockErrorMs;
        return isYoung && sealing?.isSigned(`gateway ${member.id}`, proof) === true;
      };
      const count = heard.filter(shares).length;
      if (count < known.count) {
        known.fewerSinceMs = Math.min(known.fewerSinceMs, heardMs);
        if (heardMs - known.fewerSinceMs < heartbeatKeptMs) continue;
      }
      known.count = count;
      known.fewerSinceMs = Number.POSITIVE_INFINITY;
    }
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
    const said = JSON.parse(facts.toString()) as Record<string, unknown>;
    const { host, version, startedAt, proof, proofs, figures } = said;
    if (typeof host !== 'string' || typeof version !== 'string' || typeof startedAt !== 'number') {
      return undefined;
    }
    // Throws for a number that is no moment.
    const shown = { host: host.slice(0, 64), version: version.slice(0, 32), startedAt: toTime(startedAt) };
    const named = Object.entries((proofs ?? {}) as object).map(([name, one]) => [name, String(one)] as const);
    return {
      member: { id, ...shown, figures: parseFigures(figures) },
      proofs: new Map([['', String(proof)], ...named]),
    };
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
