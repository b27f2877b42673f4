import { describe, expect, it } from 'vitest';
import { holdsCredential } from '../../src/callers/credential.ts';
import { mintToken } from '../../src/callers/token.ts';
import { Key } from '../../src/key/key.ts';
import { Scrubber } from '../../src/key/scrub.ts';

const token = mintToken();
const key = 'wa_live/7Qx+91=.key';
const scrubber = new Scrubber();
scrubber.know(new Key(key, 1));
const holdsKey = (text: string): boolean => scrubber.holdsKey(text);

/** Every character as `%XX`. */
const encodeAll = (text: string): string =>
  [...text].map((character) => `%${character.charCodeAt(0).toString(16)}`).join('');

const encodedTimes = (times: number, text: string): string =>
  times === 1 ? encodeAll(text) : encodeURIComponent(encodedTimes(times - 1, text));
const presented = ['eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl'];

describe('the search of a URL for credentials', () => {
  it.each([
    ['a token as a value', `token=${token}`],
    ['a token as a name', `${token}=1`],
    ['a token as a name alone', `page=2&${token}`],
    ['a token in a path', `/analytics/reports/${token}/`],
    ['a token within a longer word', `q=x${token}y`],
    ['a token behind something that only begins like one', `q=wag_wag_${token}`],
    ['a token that is percent-encoded', `q=${encodeAll(token)}`],
    ['a token that is percent-encoded twice', `q=${encodeURIComponent(encodeAll(token))}`],
    ['a token that is percent-encoded three times', `q=${encodedTimes(3, token)}`],
    ['a token that is percent-encoded five times', `q=${encodedTimes(5, token)}`],
    ['the upstream key', `x=${key}`],
    ['the upstream key, encoded', `x=${encodeURIComponent(key)}`],
    ['the upstream key, encoded twice', `x=${encodeURIComponent(encodeURIComponent(key))}`],
    ['the upstream key whose + was read as a blank', `x=${encodeURIComponent(key.replace('+', ' '))}`],
    ['the credential of the request', 'q=eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl'],
    ['the credential of the request, encoded', 'q=eyJhbGciOiJFUzI1NiJ9%2Ee30%2Ec2lnbmF0dXJl'],
  ])('the search finds %s', (_, urlPart) => {
    expect(holdsCredential(urlPart, presented, holdsKey)).toBe(true);
  });

  it.each([
    ['a token with one character changed', `q=${token.slice(0, -1)}${token.endsWith('A') ? 'B' : 'A'}`],
    ['a token that is cut', `q=${token.slice(0, -1)}`],
    ['a prefix alone', 'q=wag_'],
    ['broken percent signs', 'q=%&r=%zz&s=%4'],
    ['ordinary parameters', 'page=2&from=2026-01-01T00%3A00%3A00Z&q=a+b'],
  ])('the search does not take %s for a credential', (_, urlPart) => {
    expect(holdsCredential(urlPart, [], holdsKey)).toBe(false);
  });

  it('the search finds a long credential by its beginning, so that its time is in proportion to the text', () => {
    const long = `eyJ${'0123456789abcdef'.repeat(40)}`;
    expect(holdsCredential(`q=${long.slice(0, 128)}`, [long], holdsKey)).toBe(true);
    expect(holdsCredential(`q=${long.slice(0, 127)}`, [long], holdsKey)).toBe(false);
    expect(holdsCredential(`q=${long.slice(1)}`, [long], holdsKey)).toBe(false);
  });

  it('the search does not look for a credential so short that it could be any word', () => {
    expect(holdsCredential('page=test', ['test'], holdsKey)).toBe(false);
  });
});
