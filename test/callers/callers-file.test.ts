import { describe, expect, it } from 'vitest';
import { readCallersFile } from '../../src/callers/callers-file.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';

const rules = {
  loopbackOnly: false,
  operations: new Set(['list-accounts', 'list-api-keys', '/analytics/posts/']),
  workspaces: ['', 'acme'],
  forwardedHeaders: new Set(['x-team']),
};
const good = digestOf(mintToken());
const jwt = {
  issuer: 'https://login.example.com',
  audience: 'gateway',
  jwks: 'https://login.example.com/keys',
  match: { email: '*@example.com' },
};

function problemsOf(callers: unknown): readonly string[] {
  return readCallersFile(JSON.stringify({ callers }), rules).problems;
}

describe('a callers file', () => {
  it('a callers file is read with its defaults', () => {
    const { entries, problems } = readCallersFile(
      JSON.stringify({
        callers: [{ name: 'a', tokens: [{ sha256: good.toUpperCase() }], limit: { perSecond: 0.5 } }],
      }),
      rules,
    );
    expect(problems).toEqual([]);
    expect(entries).toEqual([
      {
        name: 'a',
        tokens: [{ digest: good, expiresAt: Number.POSITIVE_INFINITY }],
        operations: ['list-accounts'],
        workspaces: [''],
        weight: 1,
        limits: [{ perSecond: 0.5, burst: 1 }],
        each: undefined,
        enforce: true,
        jwt: undefined,
        fly: undefined,
        anonymous: false,
      },
    ]);
  });

  it('a callers file is read with all that it may say', () => {
    const expires = '2027-01-01T00:00:00Z';
    const callers = [
      {
        name: 'all',
        tokens: [{ sha256: good, expires }],
        operations: ['list-api-keys', '/analytics/posts/'],
        workspaces: ['acme', '-', 'acme'],
        weight: 2,
        limit: { perSecond: 2.5, burst: 7 },
        anonymous: false,
      },
      {
        name: 'login',
        jwt: { ...jwt, algorithms: ['ES256'], match: { groups: ['x', 'y'], mfa: true, guest: false } },
        limit: { perSecond: 2.5 },
      },
      { name: 'machine', fly: { org: 'o', app: 'b' }, enforce: false },
      { name: 'people', jwt: { ...jwt, match: { sub: '*' } }, each: 'sub', limits: ['5000/1d', '20/1s'] },
      { name: 'sidecar', anonymous: true },
    ];
    const anywhere = { ...rules, loopbackOnly: true };
    const { entries, problems } = readCallersFile(JSON.stringify({ callers }), anywhere);
    expect(problems).toEqual([]);
    expect(entries).toMatchObject([
      {
        name: 'all',
        tokens: [{ digest: good, expiresAt: Date.parse(expires) }],
        operations: ['list-api-keys', '/analytics/posts/'],
        workspaces: ['acme', ''],
        weight: 2,
        limits: [{ perSecond: 2.5, burst: 7 }],
        enforce: true,
        anonymous: false,
      },
      {
        name: 'login',
        jwt: {
          issuer: jwt.issuer,
          jwks: jwt.jwks,
          algorithms: ['ES256'],
          header: 'authorization',
          match: [
            { claim: 'groups', patterns: ['x', 'y'] },
            { claim: 'mfa', patterns: [true] },
            { claim: 'guest', patterns: [false] },
          ],
        },
        limits: [{ perSecond: 2.5, burst: 3 }],
      },
      { name: 'machine', fly: { org: 'o', app: 'b' }, enforce: false },
      {
        name: 'people',
        each: 'sub',
        limits: [
          { burst: 20, perSecond: 20, windowMs: 1_000 },
          { burst: 5_000, windowMs: 86_400_000 },
        ],
      },
      { name: 'sidecar', anonymous: true },
    ]);
  });

  it('a callers file says which workspaces a caller has where each has a name', () => {
    const text = JSON.stringify({ callers: [{ name: 'a', tokens: [] }] });
    const problemsWith = (workspaces: string[]) => readCallersFile(text, { ...rules, workspaces }).problems;
    expect(problemsWith(['acme'])).toEqual([]);
    expect(problemsWith(['acme', 'other'])).toEqual([
      'callers[0].workspaces: is missing: this gateway has several workspaces, and all have a name',
    ]);
  });

  it.each<[string, unknown, string]>([
    [
      'an unknown member',
      [{ name: 'a', tokens: [], opertions: [] }],
      'callers[0].opertions: is not known here (did you mean "operations"?)',
    ],
    ['no name', [{ tokens: [] }], 'callers[0].name: is missing'],
    ['a name with a line break', [{ name: 'a\nb', tokens: [] }], 'callers[0].name: must be 1 to 64'],
    [
      'a name used twice',
      [
        { name: 'a', tokens: [] },
        { name: 'a', tokens: [] },
      ],
      'callers[1].name: is the name of callers[0] already',
    ],
    [
      'a caller without a way to be it',
      [{ name: 'a' }],
      'callers[0]: has none of tokens, jwt, fly and anonymous',
    ],
    [
      'a digest with a digit too many',
      [{ name: 'a', tokens: [{ sha256: `0${good}` }, { sha256: `${good}0` }] }],
      'callers[0].tokens[0].sha256: must be 64 hexadecimal digits, the SHA-256 of the token and not the token\ncallers[0].tokens[1].sha256: must be 64',
    ],
    [
      'a token in place of its digest',
      [{ name: 'a', tokens: [{ sha256: 'wag_secret' }] }],
      'callers[0].tokens[0].sha256: must be 64 hexadecimal digits',
    ],
    [
      'a digest used twice, in another case',
      [
        { name: 'a', tokens: [{ sha256: good }] },
        { name: 'b', tokens: [{ sha256: good.toUpperCase() }] },
      ],
      'callers[1].tokens[0].sha256: is the same token as callers[0].tokens[0].sha256',
    ],
    [
      'a date without time',
      [{ name: 'a', tokens: [{ sha256: good, expires: '2027-01-01' }] }],
      'callers[0].tokens[0].expires: must be a date and time',
    ],
    [
      'an expiry that is a number',
      [{ name: 'a', tokens: [{ sha256: good, expires: 1 }] }],
      'callers[0].tokens[0].expires: must be a string, not a number',
    ],
    [
      'tokens that are no list',
      [{ name: 'a', tokens: {} }],
      'callers[0].tokens: must be a list, not an object',
    ],
    [
      'an unknown operation',
      [{ name: 'a', tokens: [], operations: ['list-acounts'] }],
      'callers[0].operations[0]: is not an operation of this gateway (did you mean "list-accounts"?): there are list-accounts,',
    ],
    [
      'a star for operations',
      [{ name: 'a', tokens: [], operations: ['*'] }],
      'callers[0].operations[0]: is not an operation',
    ],
    [
      'an unknown workspace',
      [{ name: 'a', tokens: [], workspaces: ['acne'] }],
      'callers[0].workspaces[0]: is not a workspace of this gateway (did you mean "acme"?): there',
    ],
    [
      'a weight of nothing',
      [{ name: 'a', tokens: [], weight: 0 }],
      'callers[0].weight: must lie between 0.01 and 100',
    ],
    [
      'half a request of burst',
      [{ name: 'a', tokens: [], limit: { perSecond: 1, burst: 1.5 } }],
      'callers[0].limit.burst: must be a whole number',
    ],
    [
      'a limit without rate',
      [{ name: 'a', tokens: [], limit: { burst: 1 } }],
      'callers[0].limit.perSecond: is missing',
    ],
    [
      'a limit beside several',
      [{ name: 'a', tokens: [], limit: { perSecond: 1 }, limits: ['20/1s'] }],
      'callers[0].limits: stands beside limit',
    ],
    [
      'a limit in other words',
      [{ name: 'a', tokens: [], limits: ['20 a second'] }],
      'callers[0].limits: expects limits like 60/1m,10000/1d',
    ],
    [
      'two limits for one window',
      [{ name: 'a', tokens: [], limits: ['20/1m', '30/60s'] }],
      'callers[0].limits: has two limits for windows of one length',
    ],
    ['no limits', [{ name: 'a', tokens: [], limits: [] }], 'callers[0].limits: is empty'],
    [
      'a claim of a caller without a login',
      [{ name: 'a', tokens: [], each: 'sub' }],
      'callers[0].each: names a claim, and only a caller with jwt has claims',
    ],
    [
      'a word for not enforced',
      [{ name: 'a', tokens: [], enforce: 'no' }],
      'callers[0].enforce: must be true or false',
    ],
    [
      'anonymous on an open listener',
      [{ name: 'a', anonymous: true }],
      'callers[0].anonymous: is allowed only where',
    ],
    [
      'anonymous as a word',
      [{ name: 'a', anonymous: 'true' }],
      'callers[0].anonymous: must be true or false',
    ],
    [
      'two anonymous callers',
      [
        { name: 'a', anonymous: true },
        { name: 'b', anonymous: true },
      ],
      'callers[1].anonymous: only one caller may be, and callers[0] is',
    ],
    [
      'keys in the clear',
      [{ name: 'a', jwt: { ...jwt, jwks: 'http://login.example.com/keys' } }],
      'callers[0].jwt.jwks: must begin with https:',
    ],
    [
      'keys at a look-alike of loopback',
      [{ name: 'a', jwt: { ...jwt, jwks: 'http://127.0.0.1.example.com/keys' } }],
      'callers[0].jwt.jwks: must begin with https:',
    ],
    [
      'keys of this machine by another way than HTTP',
      [{ name: 'a', jwt: { ...jwt, jwks: 'ftp://127.0.0.1/keys' } }],
      'callers[0].jwt.jwks: must begin with https:',
    ],
    [
      'keys with a name',
      [{ name: 'a', jwt: { ...jwt, jwks: 'https://u@login.example.com/keys' } }],
      'callers[0].jwt.jwks: must not hold credentials',
    ],
    [
      'keys with a password alone',
      [{ name: 'a', jwt: { ...jwt, jwks: 'https://:p@login.example.com/keys' } }],
      'callers[0].jwt.jwks: must not hold credentials',
    ],
    [
      'keys with a password',
      [{ name: 'a', jwt: { ...jwt, jwks: 'https://u:p@login.example.com/keys' } }],
      'callers[0].jwt.jwks: must not hold credentials',
    ],
    [
      'HMAC',
      [{ name: 'a', jwt: { ...jwt, algorithms: ['HS256'] } }],
      'callers[0].jwt.algorithms: "HS256" is not a signature',
    ],
    [
      'no signature',
      [{ name: 'a', jwt: { ...jwt, algorithms: ['none'] } }],
      'callers[0].jwt.algorithms: "none" is not a signature',
    ],
    [
      'a signature of a long name',
      [{ name: 'a', jwt: { ...jwt, algorithms: ['-RS256'] } }],
      'callers[0].jwt.algorithms: (malformed, 6 characters) is not a signature',
    ],
    [
      'keys at no address',
      [{ name: 'a', jwt: { ...jwt, jwks: 'keys' } }],
      'callers[0].jwt.jwks: must be an address as https:',
    ],
    ['a rule that is no object', [{ name: 'a', jwt: 7 }], 'callers[0].jwt: must be an object'],
    [
      'an unknown member of a rule',
      [{ name: 'a', jwt: { ...jwt, isuer: 'x' } }],
      'callers[0].jwt.isuer: is not known here (did you mean "issuer"?)',
    ],
    [
      'members of the wrong type in a rule',
      [{ name: 'a', jwt: { ...jwt, jwks: 7, algorithms: 7, header: 7, issuer: 7, match: { sub: 7 } } }],
      ['jwks', 'algorithms', 'header', 'issuer', 'match.sub']
        .map((member) => `callers[0].jwt.${member}: must be a string, not a number`)
        .join('\n'),
    ],
    ['nothing to match', [{ name: 'a', jwt: { ...jwt, match: {} } }], 'callers[0].jwt.match: is empty'],
    [
      'no match at all',
      [{ name: 'a', jwt: { ...jwt, match: undefined } }],
      'callers[0].jwt.match: is missing',
    ],
    ['no audience', [{ name: 'a', jwt: { ...jwt, audience: [] } }], 'callers[0].jwt.audience: is empty'],
    [
      'a JWT in X-API-Key',
      [{ name: 'a', jwt: { ...jwt, header: 'X-API-Key' } }],
      'callers[0].jwt.header: must be the name',
    ],
    [
      'a JWT in what is no name of a field',
      [
        { name: 'a', jwt: { ...jwt, header: ' x-assertion' } },
        { name: 'b', jwt: { ...jwt, header: 'x-assertion:' } },
      ],
      'callers[0].jwt.header: must be the name of a header field that has no other meaning here\ncallers[1].jwt.header: must be the name',
    ],
    [
      'a JWT in a field that goes up',
      [{ name: 'a', jwt: { ...jwt, header: 'X-Team' } }],
      'callers[0].jwt.header: goes up by FORWARD_REQUEST_HEADERS',
    ],
    [
      'a JWT in a field that always goes up',
      [{ name: 'a', jwt: { ...jwt, header: 'TraceState' } }],
      'callers[0].jwt.header: must be the name',
    ],
    ['half a Fly app', [{ name: 'a', fly: { org: 'o' } }], 'callers[0].fly.app: is missing'],
    ['callers as an object', {}, 'callers: must be a list, not an object'],
  ])('a callers file is refused for %s, with the path', (_, callers, problem) => {
    expect(problemsOf(callers).join('\n')).toContain(problem);
  });

  it.each(['Fly-Src', 'Fly-Src-Signature', 'Cookie', 'Host', 'Connection', 'X-Request-ID', 'traceparent'])(
    'a callers file is refused for a JWT in %s, which means something else',
    (header) => {
      expect(problemsOf([{ name: 'a', jwt: { ...jwt, header } }]).join()).toContain('must be the name');
    },
  );

  it('a callers file may name each signature of a public key, and keys of this machine', () => {
    const algorithms = [
      ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
      ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
    ];
    const rule = { ...jwt, jwks: 'http://127.0.0.1:9/keys', algorithms };
    expect(problemsOf([{ name: 'a', jwt: rule }])).toEqual([]);
  });

  it('all problems of a callers file are listed at once, and never a value', () => {
    const problems = problemsOf([{ name: 'a b', tokens: [{ sha256: 'wag_secret' }], weight: 'x' }, 7]);
    expect(problems).toHaveLength(4);
    expect(problems.join()).not.toContain('wag_secret');
  });

  it.each([
    [
      'a member written twice',
      '{"callers":[{"name":"a","tokens":[],"operations":["list-accounts"],"operations":["list-api-keys"]}]}',
      'callers[0].operations: is written twice',
    ],
    ['a comma too many', '{\n  "callers": [],\n}', 'not valid JSON: line 3, column 1'],
    ['text behind it', '{"callers":[]} x', 'nothing more expected'],
    ['a comment', '{ // who\n"callers":[]}', 'line 1, column 3'],
    ['a byte order mark', '\ufeff{"callers":[]}', 'line 1, column 1'],
    ['a list at the top', '[]', 'must be an object, not a list'],
    ['nothing', '', 'not valid JSON'],
    ['no callers', '{}', 'callers: is missing'],
    ['endless nesting', `{"callers":${'['.repeat(100_000)}`, 'nested too deeply'],
    ['a raw line break in a string', '{"callers":"a\nb"}', 'a line break'],
  ])('a callers file is refused for %s', (_, text, problem) => {
    expect(readCallersFile(text, rules).problems.join('\n')).toContain(problem);
  });

  it('a callers file may give a caller a jwt rule, a fly rule and several tokens', () => {
    const caller = {
      name: 'a',
      tokens: [{ sha256: good }],
      jwt: { ...jwt, header: 'X-Assertion' },
      fly: { org: 'o', app: 'b' },
    };
    const { entries, problems } = readCallersFile(JSON.stringify({ callers: [caller] }), rules);
    expect(problems).toEqual([]);
    expect(entries[0]).toMatchObject({
      jwt: {
        audiences: ['gateway'],
        header: 'x-assertion',
        match: [{ claim: 'email', patterns: ['*@example.com'] }],
      },
      fly: { org: 'o', app: 'b' },
    });
  });
});
