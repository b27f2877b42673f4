/** What the log says of the callers file and the keys of company logins. */
import type { Logger } from 'pino';
import type { CallersEvent } from '../callers/callers-event.ts';

/** One line for each event. */
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
