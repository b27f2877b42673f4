/** The demo's upstream, which misbehaves when a test asks it to. */
import {
  type Interceptor,
  type StandIn as SpecifiedStandIn,
  type StandInOptions,
  startStandIn as startSpecified,
} from '../../../src/demo/stand-in.ts';
import type { Behaviour } from './behaviour.ts';
import { misbehave } from './misbehave.ts';

export { type StandInOptions, standInKey } from '../../../src/demo/stand-in.ts';

export interface StandIn extends SpecifiedStandIn {
  /** Misbehaves from the next request on, for so many requests (default: until the next call); undefined: well again. */
  behave(next: Behaviour | undefined, times?: number): void;
}

/** Starts it and resolves when it listens. */
export async function startStandIn(options: StandInOptions = {}): Promise<StandIn> {
  const mood = new Mood();
  const standIn = await startSpecified({ ...options, intercept: mood });
  return { ...standIn, behave: (next, times) => mood.behave(next, times) };
}

/** How it misbehaves at present, and how often still. */
class Mood implements Interceptor {
  #behaviour: Behaviour | undefined;
  #timesLeft = 0;

  behave(next: Behaviour | undefined, times = Number.POSITIVE_INFINITY): void {
    this.#behaviour = times > 0 ? next : undefined;
    this.#timesLeft = times;
  }

  connect(): boolean {
    if (typeof this.#behaviour !== 'object' || this.#behaviour.resetAt !== 'connection') return false;
    this.#take();
    return true;
  }

  next(): ReturnType<Interceptor['next']> {
    const behaviour = this.#take();
    if (behaviour === undefined) return undefined;
    return (exchange) => {
      misbehave(exchange, behaviour).catch((error: unknown) => {
        // A test's own function failed, or asks for something impossible: say so, and let the test fail soon.
        process.emitWarning(error instanceof Error ? error : new Error(String(error)));
        exchange.socket.destroy();
      });
    };
  }

  /** The behaviour for one more request or connection; it wears off here. */
  #take(): Behaviour | undefined {
    const taken = this.#behaviour;
    if (taken !== undefined && --this.#timesLeft <= 0) this.#behaviour = undefined;
    return taken;
  }
}
