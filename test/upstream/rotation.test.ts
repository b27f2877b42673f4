import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Answer, SignedRequest } from '../../src/exchange/exchange.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { openKeyring } from '../../src/key/keyring.ts';
import { attachKey, checkThrough, retryWithKey } from '../../src/upstream/credential.ts';
import { patientContext, requestWith } from '../support/requests.ts';

const loops = 20;

it('four rotations of a Kubernetes mount, each revoking the old key in the same instant, fail no request', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'rotation-'));
  const keyOfVersion = (version: number) => `key-of-version-${version}-0123456789`;
  /** As the kubelet does: a new directory, then one rename; the old directory goes. */
  const mount = async (version: number) => {
    await mkdir(join(directory, `..v${version}`));
    await writeFile(join(directory, `..v${version}`, 'key'), keyOfVersion(version));
    await symlink(`..v${version}`, join(directory, '..data_tmp'));
    await rename(join(directory, '..data_tmp'), join(directory, '..data'));
    await rm(join(directory, `..v${version - 1}`), { recursive: true, force: true });
  };
  await mount(1);
  await symlink('..data/key', join(directory, 'key'));

  let valid = keyOfVersion(1);
  let inFlight = 0;
  let refusals = 0;
  const send = async (request: SignedRequest): Promise<Answer> => {
    inFlight++;
    await sleep(2);
    inFlight--;
    // The probe is the gateway's own.
    if (request.key !== valid && request.operation !== 'key-probe') refusals++;
    return {
      status: request.key === valid ? 200 : 401,
      headers: {},
      body: Buffer.from('[]'),
      sentMs: performance.now(),
      receivedMs: performance.now(),
      receivedAt: Date.now(),
      generation: request.generation,
    };
  };

  const keyring = await openKeyring({
    from: `file:${join(directory, 'key')}`,
    environment: {},
    check: checkThrough((next) => next, send),
    refreshMs: 60_000,
    onEvent: () => {},
  });
  const handle = retryWithKey(attachKey(keyring)(send));
  let stop = false;
  let answered = 0;
  const failures: unknown[] = [];
  const signal = new AbortController().signal;
  const running = Array.from({ length: loops }, async () => {
    while (!stop) {
      const request = requestWith(patientContext(signal, 25_000));
      try {
        const answer = await handle(request, new Trace(performance.now()));
        if (answer.status === 200) answered++;
        else failures.push(answer.status);
      } catch (error) {
        failures.push(error);
      }
    }
  });

  for (const version of [2, 3, 4, 5]) {
    while (inFlight < loops) await sleep(1);
    valid = keyOfVersion(version);
    refusals = 0;
    const before = answered;
    // The swap lands after the refusal.
    await sleep(20);
    await mount(version);
    while (answered < before + 3 * loops) await sleep(5);
    expect(refusals).toBeLessThanOrEqual(loops);
    expect(keyring.generation()).toBe(version);
  }
  stop = true;
  await Promise.all(running);
  keyring.close();
  await rm(directory, { recursive: true });
  expect(failures).toEqual([]);
});
