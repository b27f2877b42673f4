/** The built gateway with a store of others, while the key in the store is rotated under load. */
import { equal } from 'node:assert/strict';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { copyProgram, makeProgram } from '../../test/support/program.ts';
import { startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { startDeployed } from '../deployed.ts';

export interface Rotation {
  /** Where the key is, and what its store needs. */
  readonly settings: Readonly<Record<string, string>>;
  readonly keys: readonly [first: string, second: string];
  /** Puts the second key in the place of the first one. */
  rotate(): Promise<void>;
  /** Ends the store: the last key is kept. */
  end(): Promise<void>;
}

/** @throws Error where one request is not answered with 200 */
export async function rotateUnderLoad({ settings, keys, rotate, end }: Rotation): Promise<void> {
  const [firstKey, secondKey] = keys;
  const folder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));
  makeProgram();
  copyProgram(folder);
  symlinkSync(fileURLToPath(new URL('../../test/libraries', import.meta.url)), join(folder, 'libraries'));
  const upstream = await startStandIn({ key: firstKey });
  const gateway = await startDeployed({
    folder,
    main: join(folder, 'dist/main.js'),
    settings: {
      ...settings,
      UPSTREAM_BASE_URL: upstream.url,
      UPSTREAM_API_KEY_REFRESH: '1s',
      CACHE_TTL: '0s',
    },
    onLine: () => {},
  });
  const address = `http://127.0.0.1:${gateway.port}`;
  // The key is read once it listens; until then it is not ready, and answers 503.
  while ((await fetch(`${address}/readyz`)).status !== 200) await sleep(50);
  const statuses: number[] = [];
  let isLoaded = true;
  const load = async (): Promise<void> => {
    for (; isLoaded; await sleep(25)) {
      const answer = await fetch(`${address}/api/analytics/accounts/`);
      await answer.arrayBuffer();
      statuses.push(answer.status);
    }
  };
  const loads = [load(), load()];
  try {
    await until(() => statuses.length > 20);
    upstream.keys.add(secondKey);
    await rotate();
    await until(() => upstream.requests.at(-1)?.key === secondKey);
    upstream.keys.delete(firstKey);
    await end();
    const answered = statuses.length;
    await until(() => statuses.length > answered + 100);
  } finally {
    isLoaded = false;
    await Promise.all(loads);
    gateway.signal('SIGTERM');
    await gateway.exited;
    await upstream.close();
    rmSync(folder, { recursive: true });
  }
  equal(statuses.filter((status) => status !== 200).join(), '');
}

/** @throws Error where it does not come true in a minute */
async function until(isSo: () => boolean): Promise<void> {
  for (let tries = 0; !isSo(); tries++) {
    if (tries > 3_000) throw new Error(`${isSo} did not come true in a minute`);
    await sleep(20);
  }
}
