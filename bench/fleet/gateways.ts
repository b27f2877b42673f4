/** Gateways behind a balancer: each in a process of its own, asked in turn. */
import { Pool } from 'undici';
import { standInKey } from '../../test/support/stand-in/stand-in.ts';
import type { CallerPlan, Ending, Side } from '../storm/callers.ts';
import { type GatewayProcess, mintTokens, startGatewayProcess } from '../storm/gateway-process.ts';

export const deadlineMs = 25_000;

export interface FleetPlan {
  readonly name: string;
  readonly gateways: number;
  readonly settings: Readonly<Record<string, string>>;
  /** The greedy caller asks one gateway, and the others another. */
  readonly isSticky?: boolean;
}

interface Place {
  process: GatewayProcess;
  pool: Pool;
}

export class Gateways implements Side {
  readonly name: string;
  readonly #plan: FleetPlan;
  readonly #start: () => Promise<GatewayProcess>;
  readonly #tokens: ReadonlyMap<string, string>;
  readonly #places: Place[] = [];
  #count = 0;

  private constructor(plan: FleetPlan, upstream: URL, callers: readonly CallerPlan[]) {
    this.#plan = plan;
    this.name = plan.name;
    this.#tokens = mintTokens(callers);
    this.#start = () =>
      startGatewayProcess(upstream, standInKey, deadlineMs, callers, plan.settings, this.#tokens);
  }

  static async start(plan: FleetPlan, upstream: URL, callers: readonly CallerPlan[]): Promise<Gateways> {
    const gateways = new Gateways(plan, upstream, callers);
    const places = await Promise.all(Array.from({ length: plan.gateways }, () => gateways.#open()));
    gateways.#places.push(...places);
    return gateways;
  }

  ask(caller: string): Promise<Ending> {
    return this.askFor(caller, `/api/analytics/accounts/?n=${this.#count}`);
  }

  /** One request, as its caller sees it end. Only a 429 is a refusal: any other answer is a failure. */
  async askFor(caller: string, path: string): Promise<Ending> {
    const turn = this.#plan.isSticky ? Number(caller !== 'greedy') : this.#count;
    this.#count += 1;
    const place = this.#places[turn % this.#places.length] as Place;
    try {
      const { statusCode, headers, body } = await place.pool.request({
        ...{ method: 'GET', path },
        headers: { authorization: `Bearer ${this.#tokens.get(caller)}`, accept: 'application/json' },
      });
      await body.dump();
      if (statusCode === 200) return { kind: 'answered' };
      const retryAfterMs = Number(headers['retry-after']) * 1_000;
      return statusCode === 429 && retryAfterMs >= 0 ? { kind: 'refused', retryAfterMs } : { kind: 'failed' };
    } catch {
      return { kind: 'failed' };
    }
  }

  /** As a rolling restart does it: another gateway takes the place, then this one gets no more requests and ends. */
  async restart(at: number): Promise<void> {
    const before = this.#places[at % this.#places.length] as Place;
    const next = await this.#open();
    this.#places[at % this.#places.length] = next;
    await before.process.end();
    await before.pool.close();
  }

  async close(): Promise<undefined> {
    await Promise.all(this.#places.map(({ pool }) => pool.destroy()));
    await Promise.all(this.#places.map(({ process }) => process.end()));
    return undefined;
  }

  async #open(): Promise<Place> {
    const process = await this.#start();
    return { process, pool: new Pool(process.url.origin) };
  }
}
