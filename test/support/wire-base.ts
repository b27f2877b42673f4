/** A running gateway as the wire sees it, whatever it was started from: what the cases of `wire-cases.ts` run on. */
import { expect } from 'vitest';
import { exchange, startPair } from './gateway.ts';
import { imageFlags } from './image-flags.ts';
import { type Owner, serve, settingsFor, standInFor } from './process.ts';
import { type StandIn, standInKey } from './stand-in/stand-in.ts';

export interface WireBase {
  readonly standIn: StandIn;
  readonly port: number;
  readonly adminPort: number;
  /** Sends bytes on a connection of their own; resolves with all that came until it ended or was quiet for a while. */
  exchange(bytes: string | Buffer, quietMs?: number): Promise<string>;
  exchangeAdmin(bytes: string | Buffer, quietMs?: number): Promise<string>;
  logLines(): Record<string, unknown>[];
}

export type StartBase = (owner: Owner, settings?: Record<string, string>) => Promise<WireBase>;

/** The gateway in this process, from its sources. */
export const startSource: StartBase = async (owner, settings = {}) => {
  const atEnd = (run: () => void | Promise<void>) => owner.onTestFinished(run);
  const pair = await startPair({ ADMIN_PORT: '0', ...settings }, {}, atEnd);
  return baseOf(pair.standIn, pair.port, Number(new URL(pair.gateway.adminUrl ?? '').port), pair.logLines);
};

/** The built program with exactly the flags of the image. */
export const startDeployed: StartBase = async (owner, settings = {}) => {
  const standIn = await standInFor(owner);
  const running = await serve(owner, {
    flags: imageFlags(),
    settings: { ...settingsFor(standIn.url), ADMIN_PORT: '0', ...settings },
  });
  const adminUrl = running.lines().find((line) => 'adminUrl' in line)?.['adminUrl'];
  return baseOf(standIn, running.port, Number(new URL(String(adminUrl)).port), running.lines);
};

function baseOf(standIn: StandIn, port: number, adminPort: number, logLines: WireBase['logLines']): WireBase {
  return {
    standIn,
    port,
    adminPort,
    exchange: (bytes, quietMs = 300) => exchange(port, bytes, quietMs),
    exchangeAdmin: (bytes, quietMs = 300) => exchange(adminPort, bytes, quietMs),
    logLines,
  };
}

/** The statuses of everything that came back on one connection. */
export function statusesOf(came: string): number[] {
  return [...came.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

/** What holds whatever is sent: one key on each upstream request, the specified paths only, nothing hidden. */
export function expectNothingFoul({ standIn }: Pick<WireBase, 'standIn'>): void {
  for (const request of standIn.requests) {
    const keys = request.rawHeaders.filter((name, at) => at % 2 === 0 && /^x.?api.?key$/i.test(name));
    expect(keys).toHaveLength(1);
    expect(request.key).toBe(standInKey);
    expect(request.method).toBe('GET');
    expect(request.target).toMatch(/^\/api\/(?:analytics\/accounts|users\/api-keys)\/(?:\?|$)/);
    expect(request.target).not.toContain('hidden');
  }
}
