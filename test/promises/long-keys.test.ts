import { describe, it } from 'vitest';
import { accounts, ask } from '../support/gateway.ts';
import { imageFlags } from '../support/image-flags.ts';
import { serve, settingsFor, standInFor } from '../support/process.ts';

/** Of characters that every escape and encoding changes some of. */
const keyOf = (length: number): string =>
  `wk+4f8d/2c7"1~e0&b9.%3a\\5d<=${'0123456789abcdefGHIJ'.repeat(300)}`.slice(0, length);

describe.concurrent('a key as long as one may be', () => {
  it.for([64, 512, 2_100, 4_096])(
    'a key of %i characters: texts that begin like it are read and logged, and texts that hold it are not passed on',
    async (length, owner) => {
      const key = keyOf(length);
      owner.expect(key).toHaveLength(length);
      const opening = key.slice(0, 6);
      const standIn = await standInFor(owner, { key });
      const gateway = await serve(owner, {
        flags: imageFlags(),
        settings: { ...settingsFor(standIn.url), UPSTREAM_API_KEY: key, CACHE_TTL: '0s', LOG_LEVEL: 'trace' },
      });
      const body = JSON.stringify({ opening, again: opening.repeat(100) });
      standIn.behave({ body });
      const headers = { 'x-request-id': opening, 'x-api-key': opening };
      const came = await gateway.ask(accounts, { headers });
      owner.expect(came.status).toBe(200);
      owner.expect(came.body.toString()).toBe(body);
      // Refused, so that the id goes into a line that is searched.
      owner.expect((await gateway.ask(`/api/${opening}`, { headers })).status).toBe(404);

      standIn.behave({ body: JSON.stringify({ key }) });
      const leaked = await ask({ host: '127.0.0.1', port: gateway.port }, accounts, {});
      owner.expect(leaked.json()['code']).toBe('upstream-invalid-response');
      gateway.signal('SIGTERM');
      owner.expect(await gateway.exited).toBe(0);
      owner.expect(gateway.stderr()).toBe('');
      owner.expect(gateway.lines()).toContainEqual(owner.expect.objectContaining({ kind: 'leak' }));
      owner.expect(gateway.stdout()).not.toContain(key.slice(0, 24));
    },
  );
});
