import { describe, expect, it } from 'vitest';
import { logCallers } from '../../src/log/event-lines.ts';

describe('the log line on the keys of company logins', () => {
  it.each([
    [true, 'the last ones serve for a day'],
    [false, 'there are none yet, so every JWT gets 401'],
  ])(
    'the log line on keys that cannot be fetched says what that means for JWTs (fetched before: %s)',
    (hasKeys, meaning) => {
      const messages: unknown[] = [];
      const log = {
        info: () => {},
        error: () => {},
        warn: (_: object, message?: string) => void messages.push(message),
      };
      logCallers(log, {
        kind: 'keys-unavailable',
        address: 'https://login.example.com/keys',
        hasKeys,
        cause: new Error('503'),
      });
      expect(messages).toEqual([`the keys of company logins cannot be fetched; ${meaning}`]);
    },
  );
});
