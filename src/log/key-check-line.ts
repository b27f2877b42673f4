/** What the log says of the check of the key after the start. */
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';

/** Says what the check finds, a first 401 at once: whether it is about the key is known two seconds later. */
export async function logKeyCheck(
  log: Pick<Logger, 'info' | 'warn'>,
  outcome: Promise<number | GatewayError | undefined>,
  firstRefusal: Promise<void>,
): Promise<void> {
  const ended = outcome.then(() => 'ended' as const);
  if ((await Promise.race([firstRefusal, ended])) !== 'ended') {
    log.warn('the upstream answered 401 to the first reads with the key; looking into it');
  }
  logOutcome(log, await outcome);
}

/** @param outcome a status of the upstream, or the problem instead; `undefined` where the check was ended */
function logOutcome(log: Pick<Logger, 'info' | 'warn'>, outcome: number | GatewayError | undefined): void {
  if (outcome === undefined) return;
  if (outcome instanceof GatewayError) {
    const { code, message } = outcome;
    log.warn({ problem: code, reason: message }, 'the key could not be confirmed after the start');
  } else if (outcome >= 200 && outcome < 300) {
    log.info({ status: outcome }, 'the upstream accepts the key');
  } else if (outcome === 403) {
    log.info({ status: outcome }, 'the upstream knows the key; its holder may not list API keys');
  } else {
    log.warn({ status: outcome }, 'the key could not be confirmed after the start');
  }
}
