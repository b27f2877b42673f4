import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { variableOf } from '../../src/config/workspaces.ts';
import { imageFlags } from '../support/image-flags.ts';
import { type Served, serve, settingsFor, standInFor } from '../support/process.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import type { StandIn } from '../support/stand-in/stand-in.ts';
import { accountsOf, baseOf } from '../support/workspaces.ts';

const lengths = [64, 512, 2_100, 4_096];
const workspaceOf = (length: number): string => `length-${length}`;

/** Of characters that every escape and encoding changes some of. None holds another. */
const keyOf = (length: number): string =>
  `${length}k+4f8d/2c7"1~e0&b9.%3a\\5d<=${'0123456789abcdefGHIJ'.repeat(300)}`.slice(0, length);

describe('a key as long as one may be', () => {
  const shared = sharedOwner();
  const standIns = new Map<number, StandIn>();
  let gateway: Served;

  // One gateway, with a workspace for each key.
  beforeAll(async () => {
    const own: Record<string, string> = { WORKSPACES: lengths.map(workspaceOf).join() };
    for (const length of lengths) {
      const standIn = await standInFor(shared, { key: keyOf(length) });
      standIns.set(length, standIn);
      own[variableOf('UPSTREAM_BASE_URL', workspaceOf(length))] = standIn.url;
      own[variableOf('UPSTREAM_API_KEY_FROM', workspaceOf(length))] = `env:KEY_${length}`;
      own[`KEY_${length}`] = keyOf(length);
    }
    const { UPSTREAM_API_KEY: _, ...others } = settingsFor('http://127.0.0.1:9/api');
    gateway = await serve(shared, {
      flags: imageFlags(),
      settings: { ...others, ...own, CACHE_TTL: '0s', LOG_LEVEL: 'trace' },
    });
  });
  afterAll(async () => {
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    expect(gateway.stderr()).toBe('');
    // Again, with what was logged since.
    for (const length of lengths) expect(gateway.stdout()).not.toContain(keyOf(length).slice(0, 24));
  });

  it.for(lengths)(
    'a key of %i characters: texts that begin like it are read and logged, and texts that hold it are not passed on',
    async (length) => {
      const key = keyOf(length);
      expect(key).toHaveLength(length);
      const opening = key.slice(0, 6);
      const standIn = standIns.get(length);
      const accounts = accountsOf(workspaceOf(length));
      const body = JSON.stringify({ opening, again: opening.repeat(100) });
      standIn?.behave({ body });
      const headers = { 'x-request-id': opening, 'x-api-key': opening };
      const came = await gateway.ask(accounts, { headers });
      expect(came.status).toBe(200);
      expect(came.body.toString()).toBe(body);
      // Refused, so that the id goes into a line that is searched.
      const refused = await gateway.ask(`${baseOf(workspaceOf(length))}/${opening}`, { headers });
      expect(refused.status).toBe(404);

      standIn?.behave({ body: JSON.stringify({ key }) });
      const leaked = await gateway.ask(accounts);
      expect(leaked.json()['code']).toBe('upstream-invalid-response');
      await gateway.printed(new RegExp(`^(?=.*"kind":"leak").*"workspace":"${workspaceOf(length)}"`, 'm'));
      expect(gateway.stdout()).not.toContain(key.slice(0, 24));
    },
  );
});
