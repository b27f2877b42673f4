import { expect, it } from 'vitest';
import { LiveEvents } from '../../src/admin/live-events.ts';

it('a console that does not read is ended, and costs the others nothing', async () => {
  const live = new LiveEvents({
    status: async () => '{}',
    history: () => '[]',
    redact: (text) => text,
    onFault: () => expect.unreachable(),
  });
  const [reading, other] = [live.open(undefined).getReader(), live.open(undefined).getReader()];
  let read = 0;
  const whole = (async () => {
    while (!(await reading.read()).done) read += 1;
  })();
  for (let told = 0; told < 50; told++) {
    live.tell(undefined, 'point', '{}');
    await new Promise((resolve) => setImmediate(resolve));
  }
  let kept = 0;
  while (!(await other.read()).done) kept += 1;
  expect(kept).toBeLessThan(15);
  live.close();
  await whole;
  expect(read).toBeGreaterThanOrEqual(50);
});

it('the seventeenth console ends the oldest, and a new one makes no work for those of other workspaces', async () => {
  const asked: (string | undefined)[] = [];
  const live = new LiveEvents({
    status: async (workspace) => {
      asked.push(workspace);
      return '{}';
    },
    history: () => '[]',
    redact: (text) => text,
    onFault: () => expect.unreachable(),
  });
  const readers = Array.from({ length: 17 }, (_, at) => live.open(`w${at}`).getReader());
  await new Promise((resolve) => setImmediate(resolve));
  expect(asked).toEqual(readers.map((_, at) => `w${at}`));
  const [oldest, second] = readers;
  let events = 0;
  while (!(await oldest?.read())?.done) events += 1;
  expect(events).toBeLessThan(3);
  expect((await second?.read())?.done).toBe(false);
  live.close();
});
