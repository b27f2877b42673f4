/** What the log says of the events of other rooms: callers, shared store, the check of the key after the start. */
import type { Logger } from 'pino';
import type { CallersEvent } from '../callers/caller.ts';
import { shownLibraryText } from '../edge/log-members.ts';
import { GatewayError } from '../errors.ts';
import type { StoreChange } from '../fleet/store.ts';

/** One line for each event of the callers file and of the keys of company logins. */
export function logCallers(log: Pick<Logger, 'info' | 'warn' | 'error'>, event: CallersEvent): void {
  const { kind, ...fields } = event;
  switch (kind) {
    case 'reloaded':
      log.info(fields, 'the callers file was read again');
      break;
    case 'version-refused':
      log.error(fields, 'the new version of the callers file is refused; the one before stays in force');
      break;
    case 'file-unreadable':
      log.error(fields, 'the callers file cannot be read; the version before stays in force');
      break;
    case 'file-readable-again':
      log.info('the callers file can be read again');
      break;
    case 'older-token-used':
      log.warn(fields, 'a caller still uses a token that has a newer one beside it');
      break;
    case 'tokens-ending':
      log.warn(fields, 'tokens of these callers end within 14 days, or have ended');
      break;
    case 'keys-unavailable':
      log.warn(
        { address: event.address, err: event.cause },
        event.hasKeys
          ? 'the keys of company logins cannot be fetched; the last ones serve for a day'
          : 'the keys of company logins cannot be fetched; there are none yet, so every JWT gets 401',
      );
      break;
    case 'keys-available-again':
      log.info(fields, 'the keys of company logins can be fetched again');
      break;
    default:
      // Every kind of event has its line: one more does not compile until it has.
      kind satisfies never;
  }
}

/** One line when the shared store is used, and one when it is not any more. */
export function logFleet(log: Pick<Logger, 'info' | 'warn'>, { state, reason }: StoreChange): void {
  if (state === 'in use') log.info('the shared store is in use');
  // The store's server or client said it.
  else
    log.warn(
      { reason: shownLibraryText(reason ?? '') },
      'the shared store is away; this gateway goes on alone',
    );
}

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

const unconfirmed = 'the key could not be confirmed after the start; "analytics-gateway check" says why';

/** @param outcome a status of the upstream, or the problem instead; `undefined` where the check was ended */
function logOutcome(log: Pick<Logger, 'info' | 'warn'>, outcome: number | GatewayError | undefined): void {
  if (outcome === undefined) return;
  if (outcome instanceof GatewayError) {
    const { code, message } = outcome;
    log.warn({ problem: code, reason: message }, unconfirmed);
  } else if (outcome >= 200 && outcome < 300) {
    log.info({ status: outcome }, 'the upstream accepts the key');
  } else if (outcome === 403) {
    log.info({ status: outcome }, 'the upstream knows the key; its holder may not list API keys');
  } else {
    log.warn({ status: outcome }, unconfirmed);
  }
}
