import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Authenticator, type AuthenticatorOptions } from '../../src/callers/authenticator.ts';
import type { Authenticated, CallersEvent, Credentials } from '../../src/callers/caller.ts';
import type { CallersFileRules } from '../../src/callers/callers-file.ts';
import { GatewayError } from '../../src/errors.ts';

export const operations = new Set(['list-accounts', 'list-api-keys']);

/** A request's credentials from header lines as they came. */
export function credentials(
  lines: readonly (readonly [string, string])[],
  remoteAddress: string | undefined = '127.0.0.1',
  target = '/api/analytics/accounts/',
): Credentials {
  return { rawHeaders: lines.flat(), remoteAddress, peer: remoteAddress, target };
}

export function bearer(token: string, remoteAddress?: string): Credentials {
  return credentials([['Authorization', `Bearer ${token}`]], remoteAddress);
}

const folders: string[] = [];

/** A folder of its own, removed by `removeFolders`. */
export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'callers-'));
  folders.push(folder);
  return folder;
}

const opened: { close(): void }[] = [];

export function cleanUp(): void {
  for (const authenticator of opened.splice(0)) authenticator.close();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

export function writeCallers(callers: unknown, file = join(makeFolder(), 'callers.json')): string {
  writeFileSync(file, JSON.stringify({ callers }));
  return file;
}

/** What a callers file is checked against at a gateway with the unnamed workspace alone. */
export function rulesFor(loopbackOnly: boolean): CallersFileRules {
  return { loopbackOnly, operations, workspaces: [''], forwardedHeaders: new Set() };
}

/** An authenticator over a file, with the events it tells. */
export function open(file: string | undefined, options: Partial<AuthenticatorOptions> = {}) {
  const events: CallersEvent[] = [];
  const authenticator = new Authenticator({
    file,
    loopbackOnly: true,
    failuresPerMinute: 0,
    operations,
    workspaces: [''],
    forwardedHeaders: new Set(),
    onEvent: (event) => events.push(event),
    ...options,
  });
  opened.push(authenticator);
  return { authenticator, events };
}

/** The failure of a recognition, synchronous or not. */
export async function refusal(
  authenticate: () => Authenticated | Promise<Authenticated>,
): Promise<GatewayError> {
  try {
    const { caller } = await authenticate();
    throw new Error(`authenticated ${caller.name}`);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}
