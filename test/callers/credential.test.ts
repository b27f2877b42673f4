import { describe, expect, it } from 'vitest';
import { holdsCredential, presentedCredential, presentedValues } from '../../src/callers/credential.ts';
import { mintToken } from '../../src/callers/token.ts';
import { decodings } from '../../src/http/percent-encoding.ts';
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
    ['a credential of base64 without its padding', 'q=Zm9vYmFyYmF6cXV4MQ'],
    ['a credential with a = within it', 'q=before=the=end=of=it'],
    ['a credential whose + was read as a blank', 'q=one%20two%20three%20four'],
  ])('the search finds %s', (_, urlPart) => {
    const others = ['Zm9vYmFyYmF6cXV4MQ==', 'before=the=end=of=it=', 'one+two+three+four'];
    expect(holdsCredential(urlPart, [...presented, ...others], holdsKey)).toBe(true);
  });

  it.each([
    ['a token in base64', Buffer.from(token).toString('base64')],
    ['a token in base64url', Buffer.from(token).toString('base64url')],
    ['a user and a token, as Basic has them', Buffer.from(`script:${token}`).toString('base64')],
    ['its own token without the prefix', token.slice('wag_'.length)],
    [
      'its own token without the prefix, in base64',
      Buffer.from(token.slice('wag_'.length)).toString('base64url'),
    ],
  ])('the search finds %s in an id', (_, id) => {
    expect(holdsCredential(id, [token], holdsKey)).toBe(true);
  });

  it('the search takes no part of a credential for the whole', () => {
    expect(holdsCredential('q=before=the', ['before=the=end=of=it'], holdsKey)).toBe(false);
    expect(holdsCredential('q=beforetheendofit1', ['before=the=end=of=it='], holdsKey)).toBe(false);
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

describe('percent-encoding (RFC 3986 section 2.1)', () => {
  const nested = (times: number): string => `%${'25'.repeat(times)}41`;

  it.each<[string, string[]]>([
    ['plain', []],
    ['%41%0a', ['A\n']],
    ['\xe9%C3%a9', ['\xe9\xc3\xa9']],
    ['%2541', ['%41', 'A']],
    ['%g1%1g%', []],
    ['%%41', ['%A']],
    [nested(7), [6, 5, 4, 3, 2].map(nested)],
  ])('the text %j is decoded as often as that changes it, at most five times: %j', (text, decoded) => {
    expect(decodings(text)).toEqual([text, ...decoded]);
  });
});

describe('the credential of a request', () => {
  const fields = { assertions: ['x-login', 'x-other'], fly: true };
  const jwt = 'aaa.bbb.ccc';
  const malformed = (reason: string) => ({ kind: 'malformed', reason });

  it.each<[lines: string[], presented: object]>([
    [[], { kind: 'none' }],
    // One byte longer or shorter than a field of ours, or of the same length.
    [['Authorizatiom', 'Bearer t', 'X-Api-Keyz', 't', 'x-api-kez', 't', 'x-logim', jwt], { kind: 'none' }],
    [['Authorization', 'Bearer t'], { kind: 'token', value: 't', isBearer: true }],
    [['AUTHORIZATION', 'bEARER   t=='], { kind: 'token', value: 't==', isBearer: true }],
    [['X-API-Key', 't'], { kind: 'token', value: 't', isBearer: false }],
    [['x-api-key', 't', 'authorization', 'Bearer t'], { kind: 'token', value: 't', isBearer: true }],
    [['X-Login', jwt], { kind: 'assertion', header: 'x-login', value: jwt }],
    [['x-login', jwt, 'X-API-KEY', jwt], { kind: 'assertion', header: 'x-login', value: jwt }],
    [
      ['x-login', jwt, 'authorization', `Bearer ${jwt}`],
      { kind: 'assertion', header: 'x-login', value: jwt },
    ],
    [['Fly-Src', 's', 'Fly-Src-Signature', 'g'], { kind: 'fly', source: 's', signature: 'g' }],
    // Fly's proxy puts its own on every request.
    [
      ['fly-src', 's', 'fly-src-signature', 'g', 'x-api-key', 't'],
      { kind: 'token', value: 't', isBearer: false },
    ],
    [
      ['fly-src', 's', 'fly-src-signature', 'g', 'x-login', jwt],
      { kind: 'assertion', header: 'x-login', value: jwt },
    ],
    [['fly-srb', 's', 'fly-src-signaturf', 'g'], { kind: 'none' }],
    [['authorization', 'Bearer t', 'authorization', 'Bearer t'], malformed('Authorization is sent twice')],
    [['x-api-key', 't', 'X-API-Key', 't'], malformed('X-API-Key is sent twice')],
    [['fly-src', 's', 'Fly-Src', 's', 'fly-src-signature', 'g'], malformed('Fly-Src is sent twice')],
    [
      ['fly-src', 's', 'fly-src-signature', 'g', 'Fly-Src-Signature', 'g'],
      malformed('Fly-Src-Signature is sent twice'),
    ],
    [['fly-src', 's'], malformed('Fly-Src without signature, or reverse')],
    [['fly-src-signature', 'g'], malformed('Fly-Src without signature, or reverse')],
    [['x-login', jwt, 'x-login', jwt], malformed('x-login comes beside another JWT')],
    [['x-login', jwt, 'x-other', jwt], malformed('x-other comes beside another JWT')],
    [['x-login', `${jwt}, ${jwt}`], malformed('x-login is not one JWT')],
    [['x-login', jwt, 'x-api-key', 't'], malformed('x-login and a token differ')],
    ...[
      '',
      'Bearer',
      'Bearer ',
      'Bearer a b',
      'Bearer a, b',
      'Bearer a=b',
      'Basic YTpi',
      'xBearer t',
      't',
    ].map((value): [string[], object] => [
      ['authorization', value],
      malformed('Authorization is not "Bearer" and one token'),
    ]),
    ...['', 'a b', 'a,b', ' a', 'a=b', '=', 'é'].map((value): [string[], object] => [
      ['x-api-key', value],
      malformed('X-API-Key is not one token'),
    ]),
    [['x-api-key', 't', 'authorization', 'Bearer u'], malformed('Authorization and X-API-Key differ')],
  ])('of the lines %j it is %j', (lines, presented) => {
    expect(presentedCredential(lines, fields)).toEqual(presented);
  });

  it('fields of Fly and of logins are nothing where no caller comes by them', () => {
    const lines = [
      'fly-src',
      's',
      'fly-src',
      's',
      'fly-src-signature',
      'g',
      'fly-src-signature',
      'g',
      'x-login',
      jwt,
    ];
    expect(presentedCredential(lines, { assertions: [], fly: false })).toEqual({ kind: 'none' });
  });

  it.each<[lines: string[], values: string[]]>([
    [['Accept', 'a', 'Authorizatiom', 'b', 'x-api-kez', 'c', 'x-login', 'd'], []],
    [
      ['Authorization', 'Bearer one', 'X-API-KEY', 'two'],
      ['Bearer', 'one', 'two'],
    ],
    [
      ['authorization', 'one,  two\tthree'],
      ['one', 'two', 'three'],
    ],
    [
      ['authorization', 'basic   dXNlcjpwYTpzcw=='],
      ['basic', 'dXNlcjpwYTpzcw==', 'pa:ss'],
    ],
    [
      ['x-api-key', 'xBasic dXNlcjpwYXNz'],
      ['xBasic', 'dXNlcjpwYXNz'],
    ],
  ])('of the lines %j it may be any of %j', (lines, values) => {
    expect(presentedValues(lines, [])).toEqual(values);
  });

  it('a login’s own field may have one too', () => {
    expect(presentedValues(['X-Login', 'one', 'x-api-key', 'two', 'accept', 'a'], ['x-login'])).toEqual([
      'one',
      'two',
    ]);
  });
});
