import { describe, expect, it } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';

const on = { UPSTREAM_API_KEY_CHECK: 'on' };
const wrongKey = 'another-key-0123456789';

describe('the check of the key after the start', () => {
  it('the check of the key after the start is one read, and the log says that the upstream accepts the key', async () => {
    const pair = await startPair(on);
    await expect
      .poll(pair.logLines)
      .toContainEqual(expect.objectContaining({ level: 'info', msg: 'the upstream accepts the key' }));
    expect(pair.standIn.requests.map(({ target }) => target)).toEqual(['/api/users/api-keys/']);
  });

  it('the check of the key after the start tells of a first 401 before the rejection is proved, without any caller', async () => {
    const pair = await startPair({ ...on, UPSTREAM_API_KEY: wrongKey });
    await expect
      .poll(() => pair.logLines().map(({ msg }) => String(msg)))
      .toContainEqual(expect.stringContaining('The upstream refuses the key'));
    const lines = pair.logLines().map(({ msg }) => String(msg));
    const first = lines.findIndex((line) => line.startsWith('the upstream answered 401'));
    expect(first).toBeGreaterThan(lines.indexOf('listening'));
    expect(first).toBeLessThan(lines.findIndex((line) => line.startsWith('The upstream refuses the key')));
    expect(pair.logText()).not.toContain(wrongKey);
  });

  it('the check of the key after the start takes a 403 for what it is: the key is known', async () => {
    const pair = await startPair(on, { role: 'insufficient' });
    await expect.poll(pair.logLines).toContainEqual(expect.objectContaining({ level: 'info', status: 403 }));
  });

  it('the check of the key after the start says why the key could not be confirmed where the upstream cannot be reached, and what to run', async () => {
    const pair = await startPair({ ...on, UPSTREAM_BASE_URL: 'http://127.0.0.1:9/api', RETRY_LIMIT: '0' });
    await expect.poll(pair.logLines).toContainEqual(
      expect.objectContaining({
        ...{ level: 'warn', problem: 'upstream-unreachable' },
        msg: expect.stringContaining('"analytics-gateway check"'),
      }),
    );
  });

  it('the check of the key after the start is left out with UPSTREAM_API_KEY_CHECK=off', async () => {
    const pair = await startPair();
    await pair.ask(accounts);
    expect(pair.standIn.requests.map(({ target }) => target)).toEqual([accounts]);
  });

  it('the check of the key after the start does not hold up a stop while the upstream hangs', async () => {
    const pair = await startPair({ ...on, SHUTDOWN_GRACE: '60s', REQUEST_TIMEOUT: '60s' });
    pair.standIn.behave({ stallAt: 'before-headers' });
    await pair.standIn.received(1);
    await pair.gateway.drain();
    expect(pair.logText()).not.toContain('could not be confirmed');
  });
});
