/**
 * The gate's rules against a simulated upstream on a virtual clock: no timer, no promise, no chance but the seed.
 */
import type { Queued } from '../../src/gate/fair-queue.ts';
import {
  type MakeScheduler,
  type Permit,
  type Rejected,
  Scheduler,
  type SchedulerOptions,
  type Scheduling,
} from '../../src/gate/scheduler.ts';
import type { StatedLimit } from '../../src/http/stated-wait.ts';
import { SimulatedStore, type SimulatedStoreOptions } from './simulated-store.ts';
import { type SimulatedLimit, SimulatedUpstream } from './simulated-upstream.ts';
import { Stalls, seeded, VirtualClock } from './virtual-clock.ts';

export interface SimulatedCaller {
  readonly name: string;
  /** So many loops, each of which asks again when it has its answer and has thought. */
  readonly loops: number;
  readonly thinkMs: number;
  /** Open arrivals instead: so many a second, whatever becomes of those before. */
  readonly perSecond?: number;
  readonly weight?: number;
  /** Comes back after so long whatever it was told, ms. */
  readonly comesBackMs?: number;
  /** Does not come back once it has been turned away. */
  readonly givesUp?: boolean;
}

export interface Scenario extends SimulatedLimit {
  readonly latencyMs?: number;
  /** The first attempts take up to so much longer to get there: connections are made, code is compiled. */
  readonly slowStartMs?: number;
  /** What one attempt costs the processor of this side, ms: it can send no more than one in so long. */
  readonly costMs?: number;
  /** The gate's and the upstream's processes stall for up to so long, four times a second on average. */
  readonly stallMs?: number;
  /** So many gates; requests come to them in turn. */
  readonly gates?: number;
  /** The gates share turns through a store. Without it they know nothing of each other. */
  readonly store?: SimulatedStoreOptions;
  /** Gates that take no requests but of these callers, by the gate's place. Left out: requests come in turn. */
  readonly gateOf?: (caller: string) => number;
  readonly callers: readonly SimulatedCaller[];
  readonly seed?: number;
  readonly deadlineMs?: number;
  readonly options?: Partial<SchedulerOptions>;
}

export interface CallerFigures {
  readonly done: number;
  readonly refused: number;
  /** What it would have got from a fair neighbourhood: the lesser of its demand and its max-min share. */
  readonly entitled: number;
  readonly p50: number;
  readonly p99: number;
}

export interface Figures {
  /** Accepted by the upstream, as a share of what the limit and the demand made possible. */
  readonly goodput: number;
  /** Accepted in each second. */
  readonly perSecond: readonly number[];
  /** 429s as a share of all attempts. */
  readonly wasted: number;
  readonly attempts: number;
  readonly refusals: number;
  readonly turnedAway: number;
  readonly earlySends: number;
  /** How long those turned away had waited, ms: 0 where it was told at once. */
  readonly waitedInVain: readonly number[];
  /** Turned away, come back as told, and turned away again. */
  readonly refusedAgain: number;
  /** All times that those turned away were told, ms. */
  readonly told: readonly number[];
  /** Whether one who comes alone a minute, ten minutes and an hour later is sent up, each at a gate left as it was. */
  readonly isLoneServed: boolean;
  /** How often a gate has closed. */
  readonly closings: number;
  readonly callers: ReadonlyMap<string, CallerFigures>;
  readonly log: string[];
}

/** Why a request got no answer. */
type Rejection = Omit<Rejected<unknown>, 'request'>;

interface Request {
  readonly context: Queued['context'];
  readonly arrivedMs: number;
  refusedTimes: number;
  /** It comes back as it was told. */
  readonly isReturn: boolean;
  readonly caller: SimulatedCaller;
}

const defaults: Omit<SchedulerOptions, 'random'> = {
  maxClosedMs: 300_000,
  baseMs: 500,
  capMs: 8000,
  initialWindow: 10,
  maxInFlight: 64,
  maxWaiting: 10_000,
  maxWaitingPerCaller: 1000,
};

export function simulate(scenario: Scenario): Figures {
  return new Simulation(scenario).run();
}

class Simulation {
  readonly #scenario: Scenario;
  readonly #random: () => number;
  readonly #clock = new VirtualClock();
  readonly #upstream: SimulatedUpstream;
  readonly #upstreamStalls: Stalls;
  readonly #gates: SimulatedGate[];
  readonly #store: SimulatedStore | undefined;
  readonly #latencyMs: number;
  readonly #endMs: number;
  readonly #done: Map<string, number[]>;
  readonly #away = new Map<string, number>();
  readonly #perSecond: number[];
  readonly #counts = { attempts: 0, refusals: 0, turnedAway: 0, earlySends: 0, refusedAgain: 0 };
  readonly #waitedInVain: number[] = [];
  readonly #told: number[] = [];
  readonly #log: string[] = [];
  #arrivals = 0;

  constructor(scenario: Scenario) {
    this.#scenario = scenario;
    this.#random = seeded(scenario.seed ?? 1);
    this.#endMs = scenario.seconds * 1000;
    this.#latencyMs = scenario.latencyMs ?? 10;
    this.#upstream = new SimulatedUpstream(scenario, this.#random);
    const stalls = () => new Stalls(this.#random, 250, scenario.stallMs ?? 0);
    this.#upstreamStalls = stalls();
    this.#done = new Map(scenario.callers.map(({ name }) => [name, []]));
    this.#perSecond = Array(scenario.seconds).fill(0);
    const send = (gate: SimulatedGate, permit: Permit, request: Request) => this.#send(gate, permit, request);
    const fail = (request: Request, rejection: Rejection) => this.#finish(request, rejection);
    const { gates = 1, store } = scenario;
    this.#store = store && new SimulatedStore(store, this.#clock, gates);
    this.#gates = Array.from({ length: gates }, () => {
      const options = { ...defaults, random: this.#random, ...scenario.options };
      const make: MakeScheduler = (of, wake) => this.#store?.join(of, wake) ?? new Scheduler(of);
      return new SimulatedGate(options, make, this.#clock, stalls(), send, fail);
    });
  }

  run(): Figures {
    for (const caller of this.#scenario.callers) {
      if (caller.perSecond !== undefined) this.#arriveOpenly(caller, 1000 / caller.perSecond);
      for (let loop = 0; loop < caller.loops; loop++) {
        this.#clock.at(this.#random() * 5, () => this.#arrive(caller));
      }
    }
    this.#clock.runUntil(this.#endMs);
    this.#upstream.fill(this.#endMs);
    const accepted = this.#perSecond.reduce((sum, count) => sum + count, 0);
    const demand = this.#scenario.callers.reduce((sum, caller) => sum + this.#demandOf(caller), 0);
    return {
      ...this.#counts,
      goodput: accepted / Math.min(this.#upstream.possible, demand * this.#scenario.seconds),
      perSecond: this.#perSecond,
      wasted: this.#counts.refusals / this.#counts.attempts,
      waitedInVain: this.#waitedInVain,
      told: this.#told,
      isLoneServed: this.#gates.every((gate) => gate.isLoneServed(this.#endMs, this.#latencyMs)),
      closings: this.#gates.reduce((sum, { closings }) => sum + closings, 0),
      callers: this.#callerFigures(),
      log: this.#log,
    };
  }

  #arriveOpenly(caller: SimulatedCaller, meanMs: number): void {
    const next = (): void => {
      this.#arrive(caller);
      this.#clock.at(this.#clock.nowMs - Math.log(1 - this.#random()) * meanMs, next);
    };
    this.#clock.at(this.#random() * meanMs, next);
  }

  #arrive(caller: SimulatedCaller, isReturn = false): void {
    const { nowMs } = this.#clock;
    this.#enter({
      context: {
        flows: [{ name: caller.name, weight: caller.weight ?? 1, background: false }],
        deadlineMs: nowMs + (this.#scenario.deadlineMs ?? 25_000),
      },
      arrivedMs: nowMs,
      refusedTimes: 0,
      isReturn,
      caller,
    });
  }

  #enter(request: Request): void {
    const { gateOf } = this.#scenario;
    const place = gateOf === undefined ? this.#arrivals++ : gateOf(request.caller.name);
    const gate = this.#gates[place % this.#gates.length] as SimulatedGate;
    gate.enter(request);
  }

  #send(gate: SimulatedGate, permit: Permit, request: Request): void {
    const clock = this.#clock;
    const { slowStartMs } = this.#scenario;
    this.#counts.attempts++;
    if (clock.nowMs < this.#upstream.statedUntilMs && this.#gates.length === 1) this.#counts.earlySends++;
    const lateMs = clock.nowMs < 300 && slowStartMs !== undefined ? slowStartMs * this.#random() : 0;
    const workedMs = gate.work(this.#scenario.costMs ?? 0);
    clock.at(this.#upstreamStalls.after(clock.nowMs + this.#oneWayMs() + lateMs + workedMs), () => {
      const isAccepted = this.#upstream.accepts(clock.nowMs);
      const waitMs = isAccepted ? undefined : this.#upstream.statedMs(clock.nowMs);
      const stated = isAccepted ? this.#upstream.statedLimits(clock.nowMs) : [];
      const second = Math.floor(clock.nowMs / 1000);
      if (isAccepted && second < this.#perSecond.length) (this.#perSecond[second] as number)++;
      clock.at(gate.stalls.after(clock.nowMs + this.#oneWayMs()), () => {
        clock.at(clock.nowMs + gate.work(this.#scenario.costMs ?? 0), () => {
          gate.heard(permit, stated);
          if (isAccepted) this.#accepted(gate, permit, request);
          else this.#throttled(gate, permit, request, waitMs);
          gate.pump();
        });
      });
    });
  }

  #accepted(gate: SimulatedGate, permit: Permit, request: Request): void {
    gate.settled(permit, 'answered');
    this.#finish(request, undefined);
  }

  /** The retry layer sends a 429 back at once, with its old time of arrival. */
  #throttled(gate: SimulatedGate, permit: Permit, request: Request, waitMs: number | undefined): void {
    const { nowMs } = this.#clock;
    this.#counts.refusals++;
    if (waitMs !== undefined) {
      this.#upstream.statedUntilMs = Math.max(this.#upstream.statedUntilMs, nowMs + waitMs);
    }
    const before = gate.perSecond(nowMs);
    gate.settled(permit, { waitMs });
    this.#note(`429 ${permit.flow.name} as ${permit.state} at ${before}`);
    if (request.refusedTimes++ < 4) {
      this.#enter(request);
      return;
    }
    this.#finish(request, { code: 'upstream-rate-limited', retryAfterMs: Math.max(waitMs ?? 0, 8000) });
  }

  #finish(request: Request, rejection: Rejection | undefined): void {
    const { nowMs } = this.#clock;
    const { caller, arrivedMs } = request;
    const mayComeBack = nowMs < this.#endMs && caller.perSecond === undefined;
    if (rejection === undefined) {
      if (nowMs <= this.#endMs) this.#done.get(caller.name)?.push(nowMs - arrivedMs);
      if (mayComeBack) this.#clock.at(nowMs + caller.thinkMs, () => this.#arrive(caller));
      return;
    }
    this.#counts.turnedAway++;
    if (request.isReturn) this.#counts.refusedAgain++;
    this.#told.push(rejection.retryAfterMs);
    this.#waitedInVain.push(nowMs - arrivedMs);
    this.#away.set(caller.name, (this.#away.get(caller.name) ?? 0) + 1);
    this.#note(
      `${rejection.code} ${caller.name}, refused ${request.refusedTimes}, told ${rejection.retryAfterMs}`,
    );
    if (!mayComeBack || caller.givesUp === true) return;
    // As the header has it: in whole seconds.
    const againMs = caller.comesBackMs ?? Math.ceil(rejection.retryAfterMs / 1000) * 1000;
    this.#clock.at(nowMs + againMs, () => this.#arrive(caller, true));
  }

  #oneWayMs(): number {
    return this.#latencyMs * (0.4 + 0.2 * this.#random());
  }

  #note(text: string): void {
    this.#log.push(`${(this.#clock.nowMs / 1000).toFixed(2)} ${text}`);
  }

  /** Requests per second of a caller that nothing hinders. */
  #demandOf({ loops, thinkMs, perSecond }: SimulatedCaller): number {
    return perSecond ?? (loops * 1000) / (thinkMs + this.#latencyMs);
  }

  #callerFigures(): Map<string, CallerFigures> {
    const { callers, limit, burst, seconds } = this.#scenario;
    const entitled = callers.map(() => 0);
    const asks = callers.map((c) => ({ demand: this.#demandOf(c), weight: c.weight ?? 1 }));
    for (let second = 0; second < seconds; second++) {
      const capacity = limit(second) + (second === 0 ? burst : 0);
      maxMin(capacity, asks).forEach((share, i) => {
        entitled[i] = (entitled[i] as number) + share;
      });
    }
    return new Map(
      callers.map(({ name }, i) => {
        const times = (this.#done.get(name) ?? []).sort((a, b) => a - b);
        const p50 = quantile(times, 0.5);
        const refused = this.#away.get(name) ?? 0;
        return [
          name,
          { done: times.length, refused, entitled: entitled[i] as number, p50, p99: quantile(times, 0.99) },
        ];
      }),
    );
  }
}

type Send = (gate: SimulatedGate, permit: Permit, request: Request) => void;

/** A scheduler on the virtual clock: what `gate.ts` is in the gateway. */
class SimulatedGate {
  closings = 0;
  readonly stalls: Stalls;
  readonly #scheduler: Scheduling<Request>;
  readonly #clock: VirtualClock;
  readonly #send: Send;
  readonly #fail: (request: Request, rejection: Rejection) => void;
  readonly #under = new Set<Permit>();
  #wakeMs = Number.POSITIVE_INFINITY;
  #busyUntilMs = 0;

  constructor(
    options: SchedulerOptions,
    makeScheduler: MakeScheduler,
    clock: VirtualClock,
    stalls: Stalls,
    send: Send,
    fail: (request: Request, rejection: Rejection) => void,
  ) {
    this.#scheduler = makeScheduler<Request>(options, (rejected) => {
      this.#failAll(rejected);
      this.pump();
    });
    this.#clock = clock;
    this.stalls = stalls;
    this.#send = send;
    this.#fail = fail;
  }

  enter(request: Request): void {
    const { nowMs } = this.#clock;
    const permit = this.#scheduler.admit(request.context.flows, nowMs);
    if (permit !== undefined) {
      this.#go(permit, request);
      return;
    }
    const rejected = this.#scheduler.enter(request, nowMs);
    this.#failAll(rejected);
    if (rejected.every((other) => other.request !== request)) {
      this.#clock.at(request.context.deadlineMs, () =>
        this.#failAll(this.#scheduler.expired(request, this.#clock.nowMs)),
      );
    }
    this.pump();
  }

  pump(): void {
    const { nowMs } = this.#clock;
    let next = this.#scheduler.next(nowMs);
    for (; next.request !== undefined; next = this.#scheduler.next(nowMs))
      this.#go(next.permit, next.request);
    // Timers of a real process have a resolution of 1 ms and fire late.
    const untilMs = Math.max(Math.ceil(next.untilMs ?? Number.POSITIVE_INFINITY), nowMs + 1);
    if (untilMs >= this.#wakeMs) return;
    this.#wakeMs = untilMs;
    this.#clock.at(this.stalls.after(untilMs), () => {
      this.#wakeMs = Number.POSITIVE_INFINITY;
      this.pump();
    });
  }

  heard(permit: Permit, stated: readonly StatedLimit[]): void {
    this.#scheduler.fields.heard(stated, permit.sent.atMs, this.#clock.nowMs);
  }

  settled(permit: Permit, outcome: Parameters<Scheduler<Request>['settled']>[1]): void {
    this.#under.delete(permit);
    const before: string = this.#scheduler.record.state;
    const rejected: readonly Rejected<Request>[] = this.#scheduler.settled(
      permit,
      outcome,
      this.#clock.nowMs,
    );
    if (before !== 'closed' && this.#scheduler.record.state === 'closed') this.closings++;
    this.#failAll(rejected);
  }

  /** Until the processor has done its part of an attempt. */
  work(costMs: number): number {
    this.#busyUntilMs = Math.max(this.#busyUntilMs, this.#clock.nowMs) + costMs / 2;
    return this.#busyUntilMs - this.#clock.nowMs;
  }

  perSecond(nowMs: number): string {
    return this.#scheduler.snapshot(nowMs).attemptsPerSecond?.toFixed(1) ?? 'none';
  }

  isLoneServed(endMs: number, latencyMs: number): boolean {
    const scheduler = this.#scheduler;
    scheduler.clear();
    for (const permit of this.#under) scheduler.settled(permit, 'answered', endMs);
    const isServed = (afterMs: number): boolean => {
      const atMs = endMs + afterMs;
      const flow = { name: 'lone', weight: 1, background: false };
      let permit = scheduler.admit([flow], atMs);
      if (permit === undefined) {
        const caller = { name: 'lone', loops: 1, thinkMs: 0 };
        const deadlineMs = atMs + 25_000;
        const lone = {
          context: { flows: [flow], deadlineMs },
          arrivedMs: atMs,
          refusedTimes: 0,
          isReturn: false,
          caller,
        };
        if (scheduler.enter(lone, atMs).length > 0) return false;
        let next = scheduler.next(atMs);
        if (next.request === undefined) next = scheduler.next(next.untilMs ?? Number.NaN);
        if (next.request === undefined) return false;
        permit = next.permit;
      }
      scheduler.settled(permit, 'answered', atMs + latencyMs);
      return permit.sent.atMs < atMs + 25_000;
    };
    return [60_000, 600_000, 3_600_000].every(isServed);
  }

  #failAll(all: readonly Rejected<Request>[]): void {
    for (const rejected of all) this.#fail(rejected.request, rejected);
  }

  #go(permit: Permit, request: Request): void {
    this.#under.add(permit);
    this.#send(this, permit, request);
  }
}

/** Fills all callers up to the same level per weight, and none beyond what it asks for. */
export function maxMin(capacity: number, asks: readonly { demand: number; weight: number }[]): number[] {
  const shares = asks.map(() => 0);
  let left = capacity;
  let open = asks.map((_, i) => i);
  while (open.length > 0 && left > 1e-9) {
    const weights = open.reduce((sum, i) => sum + (asks[i]?.weight ?? 1), 0);
    const level = left / weights;
    const content = open.filter((i) => (asks[i]?.demand ?? 0) <= level * (asks[i]?.weight ?? 1));
    if (content.length === 0) {
      for (const i of open) shares[i] = level * (asks[i]?.weight ?? 1);
      break;
    }
    for (const i of content) {
      shares[i] = asks[i]?.demand ?? 0;
      left -= shares[i] as number;
    }
    open = open.filter((i) => !content.includes(i));
  }
  return shares;
}

export function quantile(sorted: readonly number[], q: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * q) - 1)] ?? Number.NaN;
}
