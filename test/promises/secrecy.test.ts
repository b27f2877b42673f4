import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { everyMisbehaviour } from '../../src/stand-in/catalogue.ts';
import { type StandIn, standInKey, startStandIn } from '../../src/stand-in/stand-in.ts';
import { accounts, startPair } from '../gateway.ts';
import { formsOf } from '../secret-forms.ts';

const forms = formsOf(standInKey);

/** Every form of the key that occurs in a text. */
function found(text: string): string[] {
  return forms.filter(({ text: form }) => text.includes(form)).map(({ name }) => name);
}

let elsewhere: StandIn;
beforeAll(async () => {
  elsewhere = await startStandIn();
});
afterAll(() => elsewhere.close());

describe('the key is in no byte that leaves, whatever the upstream does', () => {
  it.each(everyMisbehaviour('http://127.0.0.1:1').map(({ name }) => name))('%s', async (name) => {
    const { ask, standIn, logText } = await startPair({
      UPSTREAM_TIMEOUT: '300ms',
      REQUEST_TIMEOUT: '900ms',
      UPSTREAM_MAX_BODY: '64KiB',
      RETRY_LIMIT: '1',
    });
    const misbehaviour = everyMisbehaviour(elsewhere.origin).find((one) => one.name === name);
    standIn.behave(misbehaviour?.behaviour);
    const replies = [await ask(accounts), await ask(accounts, { headers: { 'x-api-key': standInKey } })];
    const everything = replies
      .map(({ rawHeaders, body }) => rawHeaders.join('\n') + body.toString('latin1'))
      .join('\n');
    expect(found(everything)).toEqual([]);
    expect(found(logText())).toEqual([]);
    expect(replies.every(({ status }) => status >= 200 && status < 600 && ![401, 206].includes(status))).toBe(
      true,
    );
    expect(elsewhere.requests).toHaveLength(0);
    // Nothing wrong is remembered: well again, the upstream is heard.
    expect(standIn.requests.every(({ key }) => key === standInKey)).toBe(true);
  });
});

describe('the search for the key', () => {
  it('finds each form it looks for', () => {
    for (const { name, text } of forms) expect(found(`a ${text} b`), name).toContain(name);
  });
});
