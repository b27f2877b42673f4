import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { refusalFields } from '../../src/edge/access-log.ts';
import { logMembers, shownFields } from '../../src/edge/log-members.ts';
import { line } from '../support/snapshot.ts';

const root = new URL('../../', import.meta.url);
const secret = 'hunter2-hunter2-hunter2-hunter2';

/** For each member whose text others write: what is shown as it came, and what is shown otherwise. */
const cases: Readonly<
  Record<string, { whole: readonly string[]; shown: readonly (readonly [unknown, unknown])[] }>
> = {
  requestId: {
    whole: ['a.B-1_~:+/='],
    shown: [
      ['a b', 'malformed, 3 characters'],
      ['', 'malformed, 0 characters'],
    ],
  },
  traceId: { whole: ['0af7651916cd43dd8448eb211c80319c'], shown: [['0AF7', 'malformed, 4 characters']] },
  trace_id: { whole: ['0af7651916cd43dd8448eb211c80319c'], shown: [['0AF7', 'malformed, 4 characters']] },
  span_id: { whole: ['00f067aa0ba902b7'], shown: [['0AF7', 'malformed, 4 characters']] },
  trace_flags: { whole: ['01', '00'], shown: [['1', 'malformed, 1 characters']] },
  method: {
    whole: ['GET', 'M-SEARCH'],
    shown: [
      ['GETS', 'malformed, 4 characters'],
      ['get', 'malformed, 3 characters'],
    ],
  },
  peer: { whole: ['127.0.0.1', '::1', 'fe80::1%eth0'], shown: [['a.example', 'malformed, 9 characters']] },
  path: {
    whole: ['/', '/api/users/api-keys/', '//a', '/a.b~c_d/', '*', 'evil.example:443', '[::1]:443'],
    shown: [
      ['/a?q', '/a'],
      ['http://u:p@localhost/a#b', '/a'],
      ['https://localhost', '/'],
      ['/a%3Fkey=b', 'malformed, 10 characters'],
      ['/a;key=b', 'malformed, 8 characters'],
      ['user:pass@a:1', 'a:1'],
      ['//user:pass@a/b', 'malformed, 15 characters'],
      ['name', 'malformed, 4 characters'],
      [`/${'x'.repeat(300)}`, `/${'x'.repeat(199)}`],
    ],
  },
  host: {
    whole: ['localhost', 'Evil.example:80', '[::1]:80', '10.0.0.1', `a.${'b'.repeat(63)}`, 'a'.repeat(24)],
    shown: [
      ['user:pass@a.example', 'a.example'],
      ['a b@c', 'malformed, 5 characters'],
      ['a, b', 'malformed, 4 characters'],
      ['a?b', 'malformed, 3 characters'],
      ['a'.repeat(25), 'malformed, 25 characters'],
      [`a.${'b'.repeat(64)}`, 'malformed, 66 characters'],
    ],
  },
  origin: {
    whole: ['null', 'https://a.example', 'http://[::1]:80'],
    shown: [
      ['https://user:pass@a.example', 'https://a.example'],
      ['https://a.example/', 'malformed, 18 characters'],
      ['a.example', 'malformed, 9 characters'],
      ['https://', 'malformed, 8 characters'],
    ],
  },
  subject: {
    whole: ['ann', 'bob "b"', 'Zo\u00eb'],
    shown: [
      ['a\nb', 'malformed, 3 characters'],
      ['\u2028', 'malformed, 1 characters'],
    ],
  },
  code: { whole: ['HPE_INVALID_METHOD', 'host-not-allowed'], shown: [['a b', 'malformed, 3 characters']] },
  cause: {
    whole: ['SocketError: other side closed', 'JWTExpired: "exp" claim timestamp check failed'],
    shown: [
      [new TypeError('a'), 'TypeError: a'],
      [parseError(`{"a":"${secret}`), /^SyntaxError: [^{]*"?malformed, \d+ characters|^SyntaxError: [^{]*$/],
      ['a\nb', 'a?b'],
      [{ secret }, 'object'],
    ],
  },
  parts: {
    whole: [],
    shown: [
      [
        ['a', `b "${secret}" c`],
        ['a', 'b "malformed, 31 characters" c'],
      ],
      [secret, []],
    ],
  },
};

function parseError(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    return error;
  }
}

const byOthers = Object.entries(logMembers).filter(
  ([, { author }]) => author !== 'us' && author !== 'operator',
);
/** An issuer's claim is signed, and any sentence. */
const unsigned = byOthers.filter(([, { author }]) => author !== 'issuer');
const isFault = (member: string): boolean => member === 'err' || member === 'error';

describe('the members of log lines', () => {
  it('each member whose text others write has its cases here, and its grammar in docs/operating.md', () => {
    const names = byOthers.map(([name]) => name);
    expect(names.filter((name) => !isFault(name)).toSorted()).toEqual(Object.keys(cases).toSorted());
    const page = readFileSync(new URL('docs/operating.md', root), 'utf8');
    for (const [name, { grammar }] of byOthers) expect(page).toContain(`| \`${name}\` | ${grammar} |`);
  });

  it.each(Object.entries(cases))(
    '%s is shown as it came where it keeps to its grammar',
    (name, { whole, shown }) => {
      const { show } = logMembers[name as keyof typeof logMembers];
      for (const text of whole) expect(show(text)).toBe(text);
      for (const [text, expected] of shown) {
        if (expected instanceof RegExp) expect(show(text)).toMatch(expected);
        else expect(show(text)).toEqual(expected);
        // The logger does it once more.
        expect(show(show(text))).toEqual(
          Array.isArray(text) || typeof text !== 'object' ? show(text) : expect.anything(),
        );
      }
    },
  );

  it.each(unsigned)(
    '%s shows nothing of a text that its sender meant for another place',
    (_name, { show }) => {
      for (const text of [
        `a\r\nX-API-Key: ${secret}`,
        `localhost Authorization: Bearer ${secret}`,
        `/a?key=${secret}`,
        `/a%3Fkey=${secret}`,
        `/a;key=${secret}`,
        `"${secret}"`,
      ]) {
        const shown = JSON.stringify(show(text));
        const isSentence = show === logMembers.cause.show || show === logMembers.err.show;
        // A library's sentence is shown: what it quotes is not.
        if (!isSentence || text.startsWith('"')) expect(shown).not.toContain(secret);
      }
    },
  );

  it('an error is shown without what a library has hung on it', () => {
    const cause = Object.assign(new Error(`Parse Error "${secret}"`), { rawPacket: Buffer.from(secret) });
    const error = Object.assign(new Error(`the exchange failed\n    at "${secret}"`, { cause }), {
      code: 'HPE_X',
      input: secret,
    });
    const shown = shownFields({ err: error });
    expect(shown).toMatchObject({
      err: {
        type: 'Error',
        code: 'HPE_X',
        message: 'the exchange failed?    at "malformed, 31 characters"',
        stack: expect.stringMatching(/^ +at /),
        cause: { message: 'Parse Error "malformed, 31 characters"' },
      },
    });
    const text = JSON.stringify(shown);
    expect(text).not.toContain(secret);
    expect(text).not.toContain(String([...Buffer.from(secret)].slice(0, 4)));
  });

  it('every member of a request’s line, and every one that an event names, is in the table', () => {
    const { refusal: _, ...own } = line;
    const inCode = globSync('src/**/*.ts', { cwd: root }).flatMap((path) => {
      const code = readFileSync(new URL(path, root), 'utf8');
      const objects = [
        ...code.matchAll(
          /\b(?:log|events)(?:\.(?:trace|debug|info|warn|error|fatal)|\[[^\]]*\])\(\s*\{([^{}]*)\}/g,
        ),
      ];
      return objects.flatMap(([, members = '']) =>
        [...members.matchAll(/(?:^|,)\s*(\w+)/g)].map(([, name = '']) => name),
      );
    });
    expect(inCode.length).toBeGreaterThan(20);
    const known = Object.keys(logMembers);
    expect([...Object.keys(own), ...inCode].filter((name) => !known.includes(name))).toEqual([]);
  });
});

describe('the path of a refused request', () => {
  const long = `session=${'0123456789abcdef'.repeat(20)}`;
  const pathOf = (target: string) =>
    refusalFields({ peer: undefined, target }, { isSecret: () => false, rawHeaders: ['Cookie', long] }).path;

  it('the beginning of a long credential in a path is one, so that the search takes time in proportion to the path', () => {
    expect(pathOf(`/${long.slice(0, 128)}`)).toBe('[a credential]');
    expect(pathOf(`/x/${long}`)).toBe('[a credential]');
    expect(pathOf(`/${long.slice(9, 120)}`)).toBe(`/${long.slice(9, 120)}`);
  });
});
