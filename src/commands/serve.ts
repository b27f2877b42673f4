/** `serve`: runs the gateway in the foreground until a signal ends it. */

import { setFlagsFromString } from 'node:v8';
import { passwordInClear } from '../config/store-address.ts';
import type { Gateway } from '../gateway/gateway.ts';
import { hardenProcess, loadConfig, settingsWithoutEffect } from './environment.ts';

/** How long what is still open after a drain may keep the process from ending. */
const lingerMs = 500;

/** @param envFile `--env-file`. @returns the exit status, once the gateway has stopped; 2 for wrong settings, 1 for other failures */
export async function serve(envFile?: string): Promise<number> {
  let gateway: Gateway;
  // A rotation of the key may send it before the gateway is up; the key is read then anyway.
  process.on('SIGHUP', () => {});
  try {
    await hardenProcess();
    const loaded = await loadConfig(envFile);
    // Half of the work of a start, which wrong settings do not need.
    const { startGateway } = await import('../gateway/gateway.ts');
    boundGarbage();
    gateway = await startGateway(loaded);
    for (const reason of settingsWithoutEffect(loaded.environment)) {
      gateway.log.events.warn({ reason }, 'a variable of the environment has no effect');
    }
    const { SHARED_STORE: store, SHARED_STORE_SENTINEL_PASSWORD_FROM: sentinels } = loaded.config;
    const inClear = store && passwordInClear(store, loaded.config.SHARED_STORE_PASSWORD_FROM ?? sentinels);
    if (inClear) gateway.log.events.warn({ reason: inClear }, 'the password of the shared store is not safe');
  } catch (error) {
    const { reportStartFailure } = await import('./start-problems.ts');
    return await reportStartFailure(error);
  }
  return live(gateway);
}

/**
 * Makes V8 collect once the heap has grown by a quarter: a cache makes much that is old when it dies, and V8 would let
 * several times the cache lie. Not a flag of the command line, with which Node compiles its own library anew at each
 * start: a third of the time until the gateway listens.
 */
function boundGarbage(): void {
  setFlagsFromString('--heap-growing-percent=25');
  // V8 would take what a few collections find alive, as on a busy machine, for long-lived, and make whole reads in the old
  // generation from then on: then each costs much more.
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/**
 * Tells a systemd that waits for it that the gateway listens (sd_notify(3)), so that of several processes the next is not
 * restarted before. By systemd's own program: Node opens no Unix sockets of datagrams.
 */
async function tellSystemd(events: Gateway['log']['events']): Promise<void> {
  const { NOTIFY_SOCKET, PATH } = process.env;
  if (NOTIFY_SOCKET === undefined) return;
  const { execFile } = await import('node:child_process');
  execFile('systemd-notify', ['--ready'], { env: { NOTIFY_SOCKET, PATH } }, (error) => {
    if (error !== null) events.warn({ err: error }, 'systemd could not be told that the gateway listens');
  });
}

/** What signals and faults do to a running gateway. */
function live(gateway: Gateway): Promise<number> {
  const { events } = gateway.log;
  void tellSystemd(events);
  return new Promise((resolve) => {
    const stop = (status: number): void => {
      gateway.drain().then(
        () => {
          resolve(status);
          // A collector that does not answer must not hold the process.
          setTimeout(() => process.exit(status), lingerMs).unref();
        },
        // What could not be closed would keep the process from ending.
        () => process.exit(1),
      );
    };
    let interrupted = false;
    process.on('SIGTERM', () => stop(0));
    process.on('SIGINT', () => {
      // A second Ctrl-C means it.
      if (interrupted) {
        gateway.log.flush();
        process.exit(130);
      }
      interrupted = true;
      stop(0);
    });
    process.on('SIGHUP', () => {
      events.info('SIGHUP: reading the key again, the callers file and the certificate');
      void gateway.reload();
    });
    process.on('SIGUSR1', () => events.warn('SIGUSR1 is ignored'));
    // A closed terminal or log reader must not end the gateway.
    process.stdout.on('error', () => {});
    process.stderr.on('error', () => {});
    // An unexpected fault: running requests are finished, then a supervisor starts a clean process.
    const onFault = (error: unknown): void => {
      try {
        events.fatal({ err: error }, 'an unexpected fault; stopping');
      } catch {
        // A throw from here would end the process at once, with its text on standard error.
      }
      stop(1);
    };
    process.on('uncaughtException', onFault);
    process.on('unhandledRejection', onFault);
    // Libraries that print, and warnings of the runtime, would put unsearched text beside the log.
    process.removeAllListeners('warning');
    process.on('warning', (warning) => events.warn({ err: warning }, 'a warning of the runtime'));
    for (const method of ['log', 'info', 'warn', 'error', 'debug', 'trace'] as const) {
      console[method] = (...parts: unknown[]) =>
        events.warn({ parts: parts.map(String) }, 'a library printed');
    }
    void gateway.ready.then((loaded) => {
      if (!loaded) stop(1);
    });
  });
}
