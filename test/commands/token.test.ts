import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readCallersFile } from '../../src/callers/callers-file.ts';
import { digestOf } from '../../src/callers/token.ts';
import {
  createToken,
  denyOperations,
  grantOperations,
  removeNamedCaller,
  revokeToken,
  setCaller,
} from '../../src/commands/token.ts';
import type { TokenIo } from '../../src/commands/token-file.ts';
import { listTokens, tellWhose } from '../../src/commands/token-list.ts';
import { bearer, cleanUp, makeFolder, open, rulesFor } from '../support/callers-fixture.ts';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
  cleanUp();
});

function collect(): TokenIo & { out: string; err: string } {
  const io = {
    out: '',
    err: '',
    stdout(text: string) {
      io.out += text;
    },
    stderr(text: string) {
      io.err += text;
    },
  };
  return io;
}

const newFile = () => join(makeFolder(), 'callers.json');

/** Makes a token that does not expire, where `more` says nothing else, and gives it back. */
async function made(
  name: string,
  file: string,
  more: { expires?: string; operations?: string[]; workspaces?: string[] } = {},
  status = 0,
) {
  const io = collect();
  expect(await createToken({ name, file, expires: 'never', ...more }, io), io.err).toBe(status);
  return io.out.trim();
}

describe('token set', () => {
  const entryIn = (file: string) =>
    (JSON.parse(readFileSync(file, 'utf8')) as { callers: object[] }).callers[0];

  it('token set writes limits, weight and workspaces of a caller, and leaves every other byte', async () => {
    vi.stubEnv('WORKSPACES', 'emea,apac');
    vi.stubEnv('UPSTREAM_API_KEY_FROM', 'file:/run/secrets/key');
    const file = newFile();
    await made('reports', file, { workspaces: ['emea'] });
    const before = readFileSync(file, 'utf8');
    const io = collect();
    const all = { limit: '5000/1d,20/1s', weight: '2.5', workspaces: ['apac', '-'] };
    expect(await setCaller({ name: 'reports', file, ...all }, io), io.err).toBe(0);
    expect(io.err).toContain('reports now has limits 20/1s, 5000/1d; weight 2.5; workspaces apac, -.');
    expect(entryIn(file)).toMatchObject({
      limits: ['20/1s', '5000/1d'],
      weight: 2.5,
      workspaces: ['apac', '-'],
    });
    const text = readFileSync(file, 'utf8');
    expect(text.split('\n').filter((line) => before.includes(line.replace(/,$/, ''))).length).toBeGreaterThan(
      6,
    );
    expect(await setCaller({ name: 'reports', file, limit: 'none' }, io)).toBe(0);
    expect(entryIn(file)).not.toHaveProperty('limits');
  });

  it.each([
    ['the first member', '{ "callers": [{ "limit": { "perSecond": 1 }, "name": "a", "anonymous": true }] }'],
    [
      'a member in the middle',
      '{ "callers": [{ "name": "a", "limit": { "perSecond": 1 }, "anonymous": true }] }',
    ],
    ['the last member', '{ "callers": [{ "name": "a", "anonymous": true, "limit": { "perSecond": 1 } }] }'],
    [
      'a line of its own',
      '{ "callers": [\n  { "name": "a",\n    "anonymous": true,\n    "limit": {\n "perSecond": 1 }\n  }] }',
    ],
  ])('token set puts limits in the place of a limit that is %s', async (_, text) => {
    const file = newFile();
    writeFileSync(file, text);
    const io = collect();
    expect(await setCaller({ name: 'a', file, limit: '20/1s' }, io), io.err).toBe(0);
    expect(entryIn(file)).toEqual({ name: 'a', anonymous: true, limits: ['20/1s'] });
    expect(await setCaller({ name: 'a', file, limit: 'none' }, io)).toBe(0);
    expect(entryIn(file)).toEqual({ name: 'a', anonymous: true });
  });

  it.each<[string, object, string]>([
    ['nothing to set', {}, 'give at least one of --limit, --weight and --workspace'],
    ['a limit in other words', { limit: '20 a second' }, '--limit expects limits like 60/1m'],
    ['a weight that is no number', { weight: 'much' }, '--weight takes a number'],
    ['a weight of nothing', { weight: '' }, '--weight takes a number'],
    ['an unknown workspace', { workspaces: ['emea'] }, '"emea" is not a workspace: there is -'],
  ])('token set with %s is wrong usage, and the file is untouched', async (_, args, message) => {
    const file = newFile();
    await made('reports', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await setCaller({ name: 'reports', file, ...args }, io)).toBe(2);
    expect(io.err).toContain(message);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  it('token set knows no caller that the file has not, and names the nearest', async () => {
    const file = newFile();
    await made('reports', file);
    const io = collect();
    expect(await setCaller({ name: 'report', file, weight: '2' }, io)).toBe(1);
    expect(io.err).toContain('there is no caller "report" (did you mean "reports"?)');
  });
});

describe('token whose', () => {
  const ask = async (file: string, text: string) => {
    const io = collect();
    return { status: await tellWhose({ file }, io, () => Promise.resolve(text)), io };
  };

  it('token whose says which caller and entry a token has, and nothing of the token', async () => {
    const file = newFile();
    const first = await made('reports', file);
    const second = await made('reports', file, { expires: '9d' });
    const { status, io } = await ask(file, `${first}\n`);
    expect(status).toBe(0);
    expect(io.out).toBe(
      `reports: token 1 of 2, digest ${digestOf(first).slice(0, 12)}, expires never, older. May do: list-accounts.\n`,
    );
    const newest = await ask(file, second);
    expect(newest.io.out).toMatch(/: token 2 of 2, digest \w{12}, expires \S+, newest, ends in 9 days\. /);
    expect(first + second).not.toContain(newest.io.out);
    for (const token of [first, second])
      expect(io.out + io.err + newest.io.out).not.toContain(token.slice(4, 12));
  });

  it.each([
    ['a token of no caller', `wag_${'A'.repeat(49)}`, 'a damaged token (its checksum is wrong)'],
    ['a JWT', `e30.${btoa('{"iss":"x"}').replaceAll('=', '')}.e30`, 'a JWT, whose caller GET /me tells'],
    ['another text', 'hunter2-hunter2', 'an unknown credential, not one of our tokens'],
  ])('token whose finds none for %s, says what it is and repeats nothing of it', async (_, text, what) => {
    const file = newFile();
    await made('reports', file);
    const { status, io } = await ask(file, text);
    expect([status, io.out]).toEqual([1, '']);
    expect(io.err).toContain(what);
    expect(io.err).not.toContain(text.slice(0, 12));
  });

  it('token whose without anything on standard input is wrong usage', async () => {
    const file = newFile();
    await made('reports', file);
    expect((await ask(file, '\n')).status).toBe(2);
  });
});

describe('token create', () => {
  it('token create writes the workspaces of a new caller, and refuses those that the gateway has not', async () => {
    vi.stubEnv('WORKSPACES', 'emea,apac');
    vi.stubEnv('UPSTREAM_API_KEY_FROM', 'file:/run/secrets/key');
    const file = newFile();
    await made('reports', file, { workspaces: ['-', 'emea'] });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({
      callers: [{ name: 'reports', workspaces: ['-', 'emea'] }],
    });
    const io = collect();
    expect(await createToken({ name: 'other', file, workspaces: ['emae'] }, io)).toBe(2);
    expect(io.err).toContain('"emae" is not a workspace (did you mean "emea"?): there are -, emea, apac;');
    expect(await createToken({ name: 'reports', file, workspaces: ['apac'] }, io)).toBe(2);
    expect(io.err).toContain('reports exists already, and --workspace is for a new caller');
    await listTokens({ file }, io);
    expect(io.out).toMatch(/reports .* list-accounts in -, emea\n/);
  });

  it('token create asks for a workspace where all have names, before it writes, and names those that it granted', async () => {
    vi.stubEnv('WORKSPACES', 'emea,apac');
    const io = collect();
    const file = newFile();
    expect(await createToken({ name: 'reports', file }, io)).toBe(2);
    expect(io.err).toBe('--workspace is required: emea, apac\n');
    expect(existsSync(file)).toBe(false);
    expect(await createToken({ name: 'reports', file, workspaces: ['apac'] }, io)).toBe(0);
    expect(io.err).toContain('reports is a new caller and may do: list-accounts in apac.\n');
    // A caller that exists has its workspaces.
    expect(await createToken({ name: 'reports', file }, io)).toBe(0);
  });

  it('token create makes a file that only its owner can read, with the digest and not the token', async () => {
    const file = newFile();
    const token = await made('reports-script', file);
    expect(token).toMatch(/^wag_[A-Za-z0-9_-]{49}$/);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, 'utf8')).toBe(
      `{\n  "callers": [\n    {\n      "name": "reports-script",\n      "tokens": [{ "sha256": "${digestOf(token)}" }],\n      "operations": ["list-accounts"]\n    }\n  ]\n}\n`,
    );
    expect(readdirSync(dirname(file))).toEqual(['callers.json']);
  });

  it('token create shows the token alone on standard output, and never on standard error', async () => {
    const io = collect();
    await createToken({ name: 'a', file: newFile() }, io);
    expect(io.out.split('\n')).toHaveLength(2);
    expect(io.err).not.toContain(io.out.trim());
  });

  it('token create makes one that a gateway accepts, and each differs', async () => {
    const file = newFile();
    const first = await made('a', file);
    const second = await made('a', file);
    expect(first).not.toBe(second);
    const { authenticator } = open(file);
    expect(authenticator.authenticate(bearer(first))).toMatchObject({
      note: expect.stringContaining('older'),
    });
    expect(authenticator.authenticate(bearer(second))).toMatchObject({ caller: { name: 'a' } });
  });

  it('token create adds to a caller and leaves every other byte alone', async () => {
    const file = newFile();
    const before = `{"later": {"x":[1,  2]},
\t"callers" : [
\t  { "name":"z", "tokens":[ ] , "note\\u0073": null },
\t  {
\t    "name": "a",
\t    "tokens": [
\t      { "sha256": "${'ab'.repeat(32)}" }
\t    ], "weight": 1.0
\t  }, { "name": "b", "fly": {"org":"o","app":"p"} }
\t]
}`;
    writeFileSync(file, before);
    const a = digestOf(await made('a', file, {}, 1));
    const z = digestOf(await made('z', file, {}, 1));
    const b = digestOf(await made('b', file, {}, 1));
    const after = readFileSync(file, 'utf8');
    expect(after).toBe(
      before
        .replace(`${'ab'.repeat(32)}" }`, `${'ab'.repeat(32)}" },\n\t      { "sha256": "${a}" }`)
        .replace('[ ]', `[{ "sha256": "${z}" }]`)
        .replace('"p"} }', `"p"}, "tokens": [{ "sha256": "${b}" }] }`),
    );
  });

  it.each([
    ['one line', '{"callers":[{"name":"x","tokens":[]}]}'],
    ['nothing in it', '{ "callers": [ ] }'],
    [
      'many lines',
      '{\n    "callers": [\n        {\n            "name": "x",\n            "tokens": []\n        }\n    ]\n}\n',
    ],
  ])('token create adds a new caller last to a file of %s', async (_, before) => {
    const file = newFile();
    writeFileSync(file, before);
    await made('new', file, { operations: ['list-api-keys'] });
    const { entries, problems } = readCallersFile(readFileSync(file, 'utf8'), rulesFor(false));
    expect(problems).toEqual([]);
    expect(entries.at(-1)).toMatchObject({ name: 'new', operations: ['list-api-keys'] });
    expect(entries).toHaveLength(before.includes('"x"') ? 2 : 1);
  });

  it('token create keeps the mode of the file and a link to it', async () => {
    const file = newFile();
    writeFileSync(file, '{"callers":[]}');
    chmodSync(file, 0o640);
    const link = join(makeFolder(), 'link.json');
    symlinkSync(file, link);
    await made('a', link);
    expect(lstatSync(link).isSymbolicLink()).toBe(true);
    expect(statSync(file).mode & 0o777).toBe(0o640);
    expect(readFileSync(file, 'utf8')).toContain('"a"');
  });

  it('token create makes the file that a link leads to, and keeps the link, where nothing is there yet', async () => {
    const folder = makeFolder();
    const file = join(folder, 'callers.json');
    symlinkSync('callers.json', join(folder, 'second.json'));
    const link = join(makeFolder(), 'link.json');
    symlinkSync(join(folder, 'second.json'), link);
    await made('a', link);
    for (const path of [link, join(folder, 'second.json')]) {
      expect(lstatSync(path).isSymbolicLink()).toBe(true);
    }
    expect(readFileSync(file, 'utf8')).toContain('"a"');
    expect(readdirSync(folder).sort()).toEqual(['callers.json', 'second.json']);
  });

  it('token create fails where links lead round', async () => {
    const folder = makeFolder();
    symlinkSync('two', join(folder, 'one'));
    symlinkSync('one', join(folder, 'two'));
    const io = collect();
    expect(await createToken({ name: 'a', file: join(folder, 'one') }, io)).toBe(1);
    expect(io.err).toContain('(ELOOP)');
    expect(lstatSync(join(folder, 'one')).isSymbolicLink()).toBe(true);
  });

  it('token create writes expiry in UTC, from a date, a time or days', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2026-06-01T12:00:00Z') });
    const file = newFile();
    await made('a', file, { expires: '2027-01-01' });
    await made('a', file, { expires: '2027-01-01T02:00:00+02:00' });
    await made('a', file, { expires: '90d' });
    expect(readFileSync(file, 'utf8').match(/"expires": "[^"]*"/g)).toEqual([
      '"expires": "2027-01-01T00:00:00Z"',
      '"expires": "2027-01-01T00:00:00Z"',
      '"expires": "2026-08-30T12:00:00Z"',
    ]);
  });

  it('token create makes a token that expires after 90 days, unless it is told otherwise', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2026-06-01T12:00:00Z') });
    const file = newFile();
    const io = collect();
    expect(await createToken({ name: 'usual', file }, io)).toBe(0);
    expect(await createToken({ name: 'for-ever', file, expires: 'never' }, io)).toBe(0);
    expect(io.err).toMatch(/token of usual .* expires 2026-08-30T12:00:00Z\./);
    expect(io.err).toMatch(/token of for-ever .* does not expire\./);
    const { entries } = readCallersFile(readFileSync(file, 'utf8'), rulesFor(false));
    expect(entries.map(({ tokens }) => tokens[0]?.expiresAt)).toEqual([
      Date.parse('2026-08-30T12:00:00Z'),
      Number.POSITIVE_INFINITY,
    ]);
  });

  it('token create says that a second token of a caller is for a rotation, and names the one before', async () => {
    const file = newFile();
    const first = digestOf(await made('a', file)).slice(0, 12);
    const io = collect();
    expect(await createToken({ name: 'a', file }, io)).toBe(0);
    expect(io.err).toContain('a had a token already, which still works: this one is for a rotation');
    expect(io.err).toContain(`token revoke a ${first}`);
  });

  it('token create does not take operations for a caller that exists: status 2, the file untouched, a hint', async () => {
    const file = newFile();
    await made('a', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await createToken({ name: 'a', file, operations: ['list-api-keys'] }, io)).toBe(2);
    expect(io.err).toContain('use "token grant a list-api-keys"');
    expect(io.out).toBe('');
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  it('token create takes the name of a command as a name', async () => {
    const file = newFile();
    await made('list', file);
    expect(readFileSync(file, 'utf8')).toContain('"name": "list"');
  });

  it.each([
    [{ name: 'a b' }, 'a caller name has'],
    [{ name: 'a', expires: 'tomorrow' }, '--expires takes'],
    [{ name: 'a', expires: '2020-01-01' }, 'in the past'],
    [{ name: 'a', file: undefined }, 'no callers file'],
  ])('token create with %o is wrong usage: status 2, nothing written', async (args, message) => {
    const io = collect();
    const file = newFile();
    expect(await createToken({ file, ...args }, io)).toBe(2);
    expect(io.err).toContain(message);
    expect(io.out).toBe('');
    expect(existsSync(file)).toBe(false);
  });

  it.each([
    ['{ "callers": [ }', 'not valid JSON: line 1, column 16'],
    ['{ "caller": [] }', 'no list of callers'],
    ['{ "callers": [{"name":"a","tokens":7}] }', 'not a list'],
    ['{ "callers": [{"name":"a"},{"name":"a"}] }', 'more than one caller'],
  ])('token create leaves a file that it does not understand alone: %s', async (text, message) => {
    const io = collect();
    const file = newFile();
    writeFileSync(file, text);
    expect(await createToken({ name: 'a', file }, io)).toBe(1);
    expect(io.err).toContain(message);
    expect(io.out).toBe('');
    expect(readFileSync(file, 'utf8')).toBe(text);
  });

  it('token create says that a token of a file the gateway refuses is not in force: status 1', async () => {
    const io = collect();
    const file = newFile();
    writeFileSync(file, '{"callers":[{"name":"x","tokns":[]}]}');
    expect(await createToken({ name: 'a', file }, io)).toBe(1);
    expect(io.err).toContain('callers[0].tokns: is not known here');
    expect(io.err).toContain('NOT in force');
    expect(io.err).not.toContain('within a second');
    expect(io.out).toMatch(/^wag_/);
  });

  it('token create grants only operations that the gateway has, those of UPSTREAM_READS included', async () => {
    const file = newFile();
    const io = collect();
    expect(await createToken({ name: 'a', file, operations: ['list-acounts'] }, io)).toBe(2);
    expect(io.err).toContain(
      '"list-acounts" is not an operation (did you mean "list-accounts"?): there are list-accounts, list-api-keys',
    );
    expect(await createToken({ name: 'a', file, operations: ['/analytics/posts/'] }, io)).toBe(2);
    expect(existsSync(file)).toBe(false);
    expect(io.out).toBe('');
    vi.stubEnv('UPSTREAM_READS', '/analytics/posts/');
    await made('a', file, { operations: ['/analytics/posts/', 'list-accounts'] });
  });

  it('token create is wrong usage where a setting that the check needs is wrong', async () => {
    const io = collect();
    vi.stubEnv('UPSTREAM_READS', 'posts');
    expect(await createToken({ name: 'a', file: newFile() }, io)).toBe(2);
    expect(io.err).toContain('UPSTREAM_READS expects paths');
  });

  it('token create shows no token where it could not be written', async () => {
    const io = collect();
    expect(await createToken({ name: 'a', file: join(makeFolder(), 'no', 'callers.json') }, io)).toBe(1);
    expect(io.err).toContain("can't be read or written (ENOENT): its folder does not exist");
    expect(io.out).toBe('');
  });

  it('token create loses no token when several are made at once', async () => {
    const file = newFile();
    const tokens = await Promise.all(['a', 'b', 'a'].map((name) => made(name, file)));
    const { authenticator } = open(file);
    for (const token of tokens)
      expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
  });
});

describe('token list', () => {
  it('token list shows names, first characters, expiry, state, limits and operations', async () => {
    const file = newFile();
    const old = digestOf(await made('reports-script', file)).slice(0, 12);
    const late = digestOf(await made('reports-script', file, { expires: '2099-01-01' })).slice(0, 12);
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace('[\n    {', '[\n    { "name": "s", "anonymous": true }, {'),
    );
    await setCaller({ name: 's', file, limit: '20/1s,500/1d', weight: '2' }, collect());
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace('"anonymous": true', '"anonymous": true, "enforce": false'),
    );
    const io = collect();
    expect(await listTokens({ file }, io)).toBe(0);
    expect(io.out).toBe(
      [
        'NAME            DIGEST        EXPIRES               STATE      LIMITS                   OPERATIONS',
        's               -             -                     anonymous  20/1s, 500/1d; weight 2  list-accounts (not enforced)',
        `reports-script  ${old}  never                 older      -                        list-accounts`,
        `reports-script  ${late}  2099-01-01T00:00:00Z  newest     -                        list-accounts`,
        '',
      ].join('\n'),
    );
  });

  it('token list --json has the same for programs, with what the gateway would refuse', async () => {
    const file = newFile();
    const token = await made('script', file);
    await setCaller({ name: 'script', file, limit: '6/1s,60/1m', weight: '0.5' }, collect());
    const io = collect();
    expect(await listTokens({ file, json: true }, io)).toBe(0);
    expect(io.err).toBe('');
    const digest = digestOf(token).slice(0, 12);
    expect(JSON.parse(io.out)).toEqual({
      callers: [
        {
          name: 'script',
          operations: ['list-accounts'],
          limits: ['6/1s', '60/1m'],
          weight: 0.5,
          enforce: true,
          tokens: [{ digest, expires: null, state: 'newest', endsInDays: null }],
          otherWays: [],
        },
      ],
      problems: [],
    });
    writeFileSync(file, readFileSync(file, 'utf8').replace('list-accounts', 'list-nothing'));
    const refused = collect();
    await listTokens({ file, json: true }, refused);
    expect((JSON.parse(refused.out) as { problems: string[] }).problems).toEqual([
      expect.stringContaining(`${file}: callers[0].operations[0]: is not an operation`),
    ]);
  });

  it('token list says what the gateway would refuse', async () => {
    const file = newFile();
    writeFileSync(file, '{"callers":[{"name":"a","tokns":[]}]}');
    const io = collect();
    expect(await listTokens({ file }, io)).toBe(0);
    expect(io.err).toContain('callers[0].tokns: is not known here (did you mean "tokens"?)');
  });

  it('token list shows what a terminal would act on as numbers', async () => {
    const file = newFile();
    const name = 'a\u001b[2J\n\u009b1A\u202eb\u2028';
    const tokens = [{ sha256: '\u0007', expires: '\r' }];
    writeFileSync(file, JSON.stringify({ callers: [{ name, tokens, '\u001b[H': 1 }, { name }] }));
    const io = collect();
    expect(await listTokens({ file }, io)).toBe(0);
    expect(io.out).toContain('a\\u{1b}[2J\\u{a}\\u{9b}1A\\u{202e}b\\u{2028}');
    expect(io.err).toContain('callers[0].(malformed, 3 characters): is not known here');
    expect(await revokeToken({ name, file }, io)).toBe(1);
    expect(io.err).toContain('more than one caller named a\\u{1b}');
    expect((io.out + io.err).replaceAll('\n', '')).not.toMatch(/[\p{C}\p{Zl}\p{Zp}]/u);
  });

  it('token list fails where there is no file', async () => {
    const io = collect();
    expect(await listTokens({ file: newFile() }, io)).toBe(1);
    expect(io.err).toContain('there is no file');
  });
});

describe('token grant and token deny', () => {
  const granted = (file: string): unknown =>
    readCallersFile(readFileSync(file, 'utf8'), rulesFor(true)).entries[0]?.operations;

  it('token grant and token deny change what a caller may do, and nothing else of the file', async () => {
    const file = newFile();
    await made('a', file);
    await made('b', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await grantOperations({ name: 'a', file, operations: ['list-api-keys'] }, io)).toBe(0);
    expect(io.err).toContain('a now may do: list-accounts, list-api-keys.');
    expect(readFileSync(file, 'utf8')).toBe(
      before.replace('["list-accounts"]', '["list-accounts", "list-api-keys"]'),
    );
    expect(await denyOperations({ name: 'a', file, operations: ['list-api-keys'] }, io)).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect(await denyOperations({ name: 'a', file, operations: ['list-accounts'] }, io)).toBe(0);
    expect(io.err).toContain('a now may do: nothing.');
    expect(granted(file)).toEqual([]);
  });

  it('token grant and token deny know what a caller may do of which the file says nothing', async () => {
    const file = newFile();
    writeFileSync(file, '{"callers":[{"name":"a","anonymous":true}]}');
    expect(await grantOperations({ name: 'a', file, operations: ['list-api-keys'] }, collect())).toBe(0);
    expect(granted(file)).toEqual(['list-accounts', 'list-api-keys']);
    writeFileSync(file, '{"callers":[{"name":"a","anonymous":true}]}');
    expect(await denyOperations({ name: 'a', file, operations: ['list-accounts'] }, collect())).toBe(0);
    expect(granted(file)).toEqual([]);
  });

  it('token grant and token deny leave the file alone where nothing changes', async () => {
    const file = newFile();
    await made('a', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await grantOperations({ name: 'a', file, operations: ['list-accounts'] }, io)).toBe(0);
    expect(await denyOperations({ name: 'a', file, operations: ['list-api-keys'] }, io)).toBe(0);
    expect(io.err.match(/a already may do: list-accounts\./g)).toHaveLength(2);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  it('token grant and token deny take an operation away that the gateway does not have any more', async () => {
    const file = newFile();
    writeFileSync(
      file,
      '{"callers":[{"name":"a","anonymous":true,"operations":["/gone/","list-accounts"]}]}',
    );
    expect(await denyOperations({ name: 'a', file, operations: ['/gone/'] }, collect())).toBe(0);
    expect(granted(file)).toEqual(['list-accounts']);
  });

  it.each([
    [grantOperations, { name: 'a', operations: ['list-acounts'] }, 2, 'did you mean "list-accounts"?'],
    [denyOperations, { name: 'a', operations: ['list-acounts'] }, 2, 'did you mean "list-accounts"?'],
    [grantOperations, { name: 'reports', operations: ['list-api-keys'] }, 1, 'there is no caller "reports"'],
    [denyOperations, { name: 'reports', operations: ['list-api-keys'] }, 1, 'there is no caller "reports"'],
  ])(
    'token grant and token deny say what is wrong, and leave the file alone: %o %o',
    async (command, args, status, message) => {
      const file = newFile();
      await made('a', file);
      const before = readFileSync(file, 'utf8');
      const io = collect();
      expect(await command({ file, ...args }, io)).toBe(status);
      expect(io.err).toContain(message);
      expect(readFileSync(file, 'utf8')).toBe(before);
    },
  );

  it('token grant and token deny make no file', async () => {
    const file = newFile();
    for (const command of [grantOperations, denyOperations]) {
      expect(await command({ name: 'a', file, operations: ['list-accounts'] }, collect())).toBe(1);
    }
    expect(existsSync(file)).toBe(false);
  });
});

describe('token remove', () => {
  it('token remove removes a caller with its tokens and leaves the others alone', async () => {
    const file = newFile();
    await made('a', file);
    const before = readFileSync(file, 'utf8');
    const token = await made('b', file);
    const io = collect();
    expect(await removeNamedCaller({ name: 'b', file }, io)).toBe(0);
    expect(io.err).toContain('Removed the caller b (1 token).');
    expect(readFileSync(file, 'utf8')).toBe(before);
    expect(() => open(file).authenticator.authenticate(bearer(token))).toThrow();
  });

  it('token remove says which other ways to be this caller go with it', async () => {
    const file = newFile();
    writeFileSync(file, '{"callers":[{"name":"a","tokens":[],"anonymous":true}]}');
    const io = collect();
    expect(await removeNamedCaller({ name: 'a', file }, io)).toBe(0);
    expect(io.err).toContain('Removed the caller a (0 tokens, anonymous).');
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ callers: [] });
  });

  it('token remove fails where there is no such caller, and leaves the file alone', async () => {
    const file = newFile();
    await made('reports', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await removeNamedCaller({ name: 'report', file }, io)).toBe(1);
    expect(io.err).toContain('there is no caller "report" (did you mean "reports"?)');
    expect(readFileSync(file, 'utf8')).toBe(before);
  });
});

describe('token revoke', () => {
  it('token revoke removes one token by its digest, and nothing else', async () => {
    const file = newFile();
    const first = await made('a', file);
    const text = readFileSync(file, 'utf8');
    const second = await made('a', file);
    const io = collect();
    expect(
      await revokeToken({ name: 'a', file, digest: digestOf(second).slice(0, 8).toUpperCase() }, io),
    ).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(text);
    const { authenticator } = open(file);
    expect(authenticator.authenticate(bearer(first))).toMatchObject({ by: 'token' });
    expect(() => authenticator.authenticate(bearer(second))).toThrow();
  });

  it('token revoke removes every token of a caller, who stays with what was granted', async () => {
    const file = newFile();
    await made('a', file, { operations: ['list-api-keys'] });
    await made('a', file);
    await made('a', file);
    expect(await revokeToken({ name: 'a', file }, collect())).toBe(0);
    const { entries, problems } = readCallersFile(readFileSync(file, 'utf8'), rulesFor(false));
    expect(problems).toEqual([]);
    expect(entries).toMatchObject([{ name: 'a', tokens: [], operations: ['list-api-keys'] }]);
  });

  it.each([
    [{ name: 'reports-scrip' }, 1, 'there is no caller "reports-scrip" (did you mean "reports-script"?)'],
    [{ name: 'reports-script', digest: 'zz' }, 2, 'at least 4 characters'],
    [{ name: 'reports-script', digest: '0000000000000000' }, 1, 'has no token whose digest begins with'],
  ])('token revoke says what it did not find: %o', async (args, status, message) => {
    const file = newFile();
    await made('reports-script', file);
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await revokeToken({ file, ...args }, io)).toBe(status);
    expect(io.err).toContain(message);
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  const inForce = 'follows within a second';

  it.each<[string, object, Record<string, string>]>([
    ['an unknown member', { name: 'x', tokns: [] }, {}],
    [
      'an operation that the gateway has not',
      { name: 'x', tokens: [], operations: ['/analytics/posts/'] },
      {},
    ],
    ['an anonymous caller of an open listener', { name: 'x', anonymous: true }, { HOST: '0.0.0.0' }],
    [
      'a JWT in a field that goes up',
      {
        name: 'x',
        jwt: {
          issuer: 'i',
          audience: 'a',
          jwks: 'https://login.example.com/keys',
          match: { sub: 's' },
          header: 'X-Team',
        },
      },
      { FORWARD_REQUEST_HEADERS: 'X-Team' },
    ],
  ])('token revoke promises nothing where the file has a problem: %s', async (_, faulty, settings) => {
    for (const [name, value] of Object.entries(settings)) vi.stubEnv(name, value);
    const file = newFile();
    const token = await made('a', file);
    const callers = [...JSON.parse(readFileSync(file, 'utf8')).callers, faulty];
    writeFileSync(file, JSON.stringify({ callers }));
    const io = collect();
    expect(await revokeToken({ name: 'a', file }, io)).toBe(1);
    expect(io.err).toMatch(/^Revoked the token .* of a\.$/m);
    expect(io.err).toContain('callers[1]');
    expect(io.err).toContain('NOT in force');
    expect(io.err).not.toContain(inForce);
    expect(readFileSync(file, 'utf8')).not.toContain(digestOf(token));
  });

  it('token revoke promises what it can where the file is fine, operations of UPSTREAM_READS included', async () => {
    vi.stubEnv('UPSTREAM_READS', '/analytics/posts/');
    const file = newFile();
    await made('a', file, { operations: ['/analytics/posts/'] });
    const io = collect();
    expect(await revokeToken({ name: 'a', file }, io)).toBe(0);
    expect(io.err).toContain(inForce);
  });

  it('token revoke asks for more characters where they fit two tokens, and removes none', async () => {
    const file = newFile();
    const tokens = ['1', '2'].map((last) => ({ sha256: `${'ab'.repeat(31)}0${last}` }));
    writeFileSync(file, JSON.stringify({ callers: [{ name: 'a', tokens }] }));
    const before = readFileSync(file, 'utf8');
    const io = collect();
    expect(await revokeToken({ name: 'a', file, digest: 'abab' }, io)).toBe(1);
    expect(io.err).toContain('more than one token of a begins with abab');
    expect(readFileSync(file, 'utf8')).toBe(before);
  });
});
