/** What the log says of the shared store. */
import type { Logger } from 'pino';
import type { StoreChange } from '../fleet/store.ts';

/** One line when the store is used, and one when it is not any more. */
export function logFleet(log: Pick<Logger, 'info' | 'warn'>, { state, reason }: StoreChange): void {
  if (state === 'in use') log.info('the shared store is in use');
  else log.warn({ reason }, 'the shared store is away; this gateway goes on alone');
}
