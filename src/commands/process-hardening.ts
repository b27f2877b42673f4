/** Keeps the process from being opened while it holds a secret. `main.ts` ignores SIGUSR1 before it imports anything. */
import { SettingError } from '../errors.ts';
import { findRefusedVariable, storeCommandMark } from '../key/node-flags.ts';

/** Node runs with something that could show a secret, so none may be opened, not even to look for further problems. */
export class UnsafeProcessError extends SettingError {
  override readonly name = 'UnsafeProcessError';
}

/**
 * Run first by each command that holds the key. Closes an inspector that a signal opened before we could look.
 *
 * @throws UnsafeProcessError saying in one line why nothing may start
 */
export async function hardenProcess(): Promise<void> {
  // With a .env it would find the same command there, and start itself for ever, each in a group of its own.
  if (process.env[storeCommandMark] !== undefined) {
    throw new UnsafeProcessError(
      'started by a gateway as the command of its own exec: store. Name a command that prints the key',
    );
  }
  const { default: inspector } = await import('node:inspector');
  if (inspector.url() !== undefined) inspector.close();
  const refused = findRefusedVariable(process.env, process.execArgv);
  if (refused !== undefined) throw new UnsafeProcessError(refused.why);
}
