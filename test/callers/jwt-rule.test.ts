import { describe, expect, it } from 'vitest';
import {
  claimedOrigin,
  expired,
  findMisfit,
  matchesPattern,
  whyNoLogin,
} from '../../src/callers/jwt-rule.ts';

describe('a pattern', () => {
  it.each([
    ['ann', 'ann', true],
    ['ann', 'an', false],
    ['ann@example.com', '*@example.com', true],
    ['ann@example.com.evil', '*@example.com', false],
    ['ann@exampleXcom', '*@example.com', false],
    ['repo:org/app:ref:refs/heads/main', 'repo:org/*:ref:refs/heads/main', true],
    ['repo:org2/app:ref:refs/heads/main', 'repo:org/*:ref:refs/heads/main', false],
    ['', '*', true],
    ['anything', '**', true],
    ['aXb', 'a*b', true],
    ['ab', 'a*b', true],
    ['aba', 'ab*ba', false],
    ['a1b2c', 'a*b*c', true],
    ['acb', 'a*b*c', false],
    ['axc', 'a*b*c', false],
    ['acbd', 'a*b*c*d', false],
    ['abd', 'a*b*b*d', false],
    ['abc', 'a*bc*c', false],
    ['abcc', 'a*bc*c', true],
    ['(a+)+', '(a+)+', true],
    ['aaaa', '(a+)+', false],
    ['a\nb', 'a*b', true],
  ])('the text %s is matched by the pattern %s: %s', (text, pattern, expected) => {
    expect(matchesPattern(text, pattern)).toBe(expected);
  });

  it('a pattern is matched in linear time, whatever it is', () => {
    // A regular expression made of this would take longer than the universe has.
    expect(matchesPattern('a'.repeat(5_000), `${'a*'.repeat(200)}b`)).toBe(false);
  });
});

describe('verified claims', () => {
  const email = [{ claim: 'email', patterns: ['*@example.com'] }];

  it.each<[string, Record<string, unknown>, boolean]>([
    ['a verified e-mail', { email: 'ann@example.com', email_verified: true }, true],
    ['an e-mail of an issuer that does not say', { email: 'ann@example.com' }, true],
    ['the word true', { email: 'ann@example.com', email_verified: 'true' }, true],
    ['not verified', { email: 'ann@example.com', email_verified: false }, false],
    ['the word false', { email: 'ann@example.com', email_verified: 'false' }, false],
    ['verified as null', { email: 'ann@example.com', email_verified: null }, false],
    ['two at signs', { email: 'ann@evil.example@example.com' }, false],
    ['a blank', { email: 'ann@evil.example @example.com' }, false],
    ['a line break', { email: 'ann@evil.example\n@example.com' }, false],
    ['a display name', { email: '"x"<ann@evil.example>,a@example.com' }, false],
    ['a list of e-mails', { email: ['ann@example.com'] }, false],
    ['no e-mail', { mail: 'ann@example.com' }, false],
    ['an e-mail that is a number', { email: 7 }, false],
  ])('verified claims match an e-mail rule only where they should: %s', (_, claims, expected) => {
    expect(findMisfit(claims, email)).toBe(expected ? undefined : 'email');
  });

  it.each<[string, string, Record<string, unknown>, boolean]>([
    ['upn', 'a verified address', { upn: 'ann@example.com', email_verified: true }, true],
    ['upn', 'an address of an issuer that does not say', { upn: 'ann@example.com' }, true],
    ['upn', 'an address that is not verified', { upn: 'ann@example.com', email_verified: false }, false],
    ['upn', 'two at signs', { upn: 'ann@evil.example@example.com' }, false],
    ['preferred_username', 'a blank', { preferred_username: 'ann@evil.example @example.com' }, false],
    ['sub', 'a display name', { sub: '"x"<ann@evil.example>,a@example.com' }, false],
    ['emails', 'one good address of a list', { emails: ['x@other.example', 'a@example.com'] }, true],
    ['emails', 'two at signs in a list', { emails: ['ann@evil.example@example.com'] }, false],
    ['email', 'a bare word that the list has too', { email: 'robot' }, false],
    ['sub', 'a bare word that the list has too', { sub: 'robot', email_verified: false }, true],
  ])('the claim %s is held to be an address where the pattern has an @: %s', (claim, _, claims, expected) => {
    expect(findMisfit(claims, [{ claim, patterns: ['*@example.com', 'robot'] }])).toBe(
      expected ? undefined : claim,
    );
  });

  it('verified claims must match every claim of the rule, lists by any of their members', () => {
    const match = [
      { claim: 'groups', patterns: ['analytics', 'ops'] },
      { claim: 'mfa', patterns: [true] },
    ];
    expect(findMisfit({ groups: ['x', 'ops'], mfa: true }, match)).toBeUndefined();
    expect(findMisfit({ groups: 'analytics', mfa: true }, match)).toBeUndefined();
    expect(findMisfit({ groups: ['x'], mfa: true }, match)).toBe('groups');
    expect(findMisfit({ groups: ['ops'], mfa: 'true' }, match)).toBe('mfa');
    expect(findMisfit({ groups: ['ops'] }, match)).toBe('mfa');
    expect(findMisfit({ groups: [['ops']], mfa: true }, match)).toBe('groups');
  });

  it('inherited members are no claims', () => {
    expect(findMisfit({}, [{ claim: 'constructor', patterns: ['*'] }])).toBe('constructor');
    expect(findMisfit({}, [{ claim: '__proto__', patterns: ['*'] }])).toBe('__proto__');
  });
});

describe('what a JWT says of itself', () => {
  const jwt = (claims: unknown) => `e30.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.c2ln`;

  it.each<[string, string, object | undefined]>([
    ['an issuer', jwt({ iss: 'i' }), { issuer: 'i' }],
    ['issuer, subject and end', jwt({ iss: 'i', sub: 's', exp: 7 }), { issuer: 'i', subject: 's', exp: 7 }],
    ['subject and end of other types', jwt({ iss: 'i', sub: 7, exp: '7' }), { issuer: 'i' }],
    ['letters beyond ASCII', jwt({ iss: 'é' }), { issuer: 'é' }],
    ['no issuer', jwt({ sub: 's' }), undefined],
    ['an issuer that is no text', jwt({ iss: 7 }), undefined],
    ['nothing', jwt(null), undefined],
    ['a text', jwt('iss'), undefined],
    ['what is no JSON', 'e30.eyJ9eyJ9.c2ln', undefined],
    ['an issuer, with more before it', ` ${jwt({ iss: 'i' })}`, undefined],
    ['an issuer, with more behind it', `${jwt({ iss: 'i' })} `, undefined],
    ['an issuer, without a signature', jwt({ iss: 'i' }).slice(0, -4), undefined],
  ])('a JWT tells whose it is: %s', (_, token, origin) => {
    expect(claimedOrigin(token)).toEqual(origin && { subject: undefined, exp: undefined, ...origin });
  });

  it.each<[string, unknown, object, string | undefined]>([
    ['no type', undefined, {}, undefined],
    ...['JWT', 'jwt', 'at+jwt', 'AT+JWT', 'application/jwt', 'application/at+jwt'].map(
      (type): [string, unknown, object, undefined] => [`the type ${type}`, type, {}, undefined],
    ),
    ...['logout+jwt', 'secevent+jwt', 'dpop+jwt', 'application/logout+jwt', 'JWT+x', ['JWT'], ''].map(
      (type): [string, unknown, object, string] => [
        `the type ${JSON.stringify(type)}`,
        type,
        {},
        'its typ is neither absent nor JWT or at+jwt',
      ],
    ),
    [
      'the events of a logout token',
      'JWT',
      { events: { 'http://schemas.openid.net/event/backchannel-logout': {} } },
      'it has events: it reports something and is no login',
    ],
    ['a binding', 'at+jwt', { cnf: null }, 'it has cnf: it is bound to a key and is no bearer token'],
  ])('a JWT is a login, or says that it is none: %s', (_, type, claims, why) => {
    expect(whyNoLogin(type, claims as Record<string, unknown>)).toBe(why);
  });

  it.each([
    [1e9, ' (2001-09-09T01:46:40.000Z)'],
    [1e11, ''],
    [-1e11, ''],
    ['1e9', ''],
  ])('of a JWT that ended at %j the log says when, if it can', (exp, at) => {
    expect(expired(exp)).toBe(`has expired${at}: its caller has to log in again`);
  });
});
