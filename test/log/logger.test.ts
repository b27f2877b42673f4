import { expect, it } from 'vitest';
import { createLogger, type LogDestination } from '../../src/log/logger.ts';
import { line } from '../support/snapshot.ts';

/** A log whose last lines can be read. */
function logOf(redact: (text: string) => string) {
  let text = '';
  const destination: LogDestination = {
    write: (lines) => {
      text += lines;
    },
    flush: () => {},
    close: async () => {},
  };
  const log = createLogger({ level: 'info', redact, destination });
  return {
    log,
    lines: () => {
      log.flush();
      return text
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    },
  };
}

it('an object that throws when it is looked at costs its line, and the log goes on', () => {
  const { log, lines } = logOf((text) => text);
  const error = Object.defineProperty(new Error('x'), 'code', {
    enumerable: true,
    get() {
      throw new Error('from within');
    },
  });
  log.events.fatal({ err: error }, 'a fault');
  log.events.info('the next');
  expect(lines()).toMatchObject([
    { level: 'fatal', msg: 'a line of the log cannot be made' },
    { level: 'info', msg: 'the next' },
  ]);
});

it('a search for the key that fails lets nothing out that was not searched', () => {
  const { log, lines } = logOf(() => {
    throw new Error('the search fails');
  });
  log.events.warn({ secret: 'not to be seen' }, 'a message');
  expect(lines()).toMatchObject([{ level: 'warn', msg: 'a line of the log cannot be made' }]);
  expect(JSON.stringify(lines())).not.toContain('not to be seen');
});

it('a request that ends with a 5xx is a warning in the log, whatever it says of it', () => {
  const { log, lines } = logOf((text) => text);
  for (const status of [499, 500, 504]) log.access({ ...line, status });
  log.access({ ...line, status: 502, reason: 'no connection' });
  log.access({ ...line, status: 404, reason: 'no such operation' });
  expect(lines().map(({ status, level }) => [status, level])).toEqual([
    [499, 'info'],
    [500, 'warn'],
    [504, 'warn'],
    [502, 'warn'],
    [404, 'info'],
  ]);
});

it('a figure is rounded to a hundredth, wherever it stands among the fields of an event', () => {
  const { log, lines } = logOf((text) => text);
  const problems = [{ low: 0.129, list: [1.005, 2] }];
  log.events.info(
    { perSecond: 3.333_33, waiting: 7, problems, reason: '1.234', err: new Error('with 1.2345') },
    'happened',
  );
  expect(lines()).toMatchObject([
    {
      perSecond: 3.33,
      waiting: 7,
      problems: [{ low: 0.13, list: [1, 2] }],
      reason: '1.234',
      err: { message: 'with 1.2345' },
    },
  ]);
});

it('an event is shown by the table of members, and what the table does not have by its length', () => {
  const { log, lines } = logOf((text) => text);
  log.events.info({ host: 'localhost Cookie: hunter2', password: 'hunter2', more: { a: 'hunter2' } }, 'x');
  expect(lines()).toMatchObject([
    { host: 'malformed, 25 characters', password: 'unlisted, 7 characters', more: 'unlisted' },
  ]);
});
