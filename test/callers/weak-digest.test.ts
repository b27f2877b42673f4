import { afterEach, describe, expect, it, vi } from 'vitest';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { guessableTokenProblems } from '../../src/callers/weak-digest.ts';
import { bearer, cleanUp, open, refusal, writeCallers } from '../support/callers-fixture.ts';

const problem = 'belongs to a token that can be guessed; make one with the token command';
const callers = (...values: string[]) => [
  { name: 'nightly-job', tokens: values.map((value) => ({ sha256: digestOf(value) })) },
];

afterEach(cleanUp);

describe('the list of tokens that can be guessed', () => {
  it.each([
    ['nothing', ''],
    ['a letter', 'a'],
    ['two characters', 'Z9'],
    ['a number of four digits', '0815'],
    ['a word', 'Password123'],
    ['a word with the line break of echo', 'secret\n'],
    ['one character many times', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'],
  ])('the list of guessable tokens has the digest of %s', (_, weak) => {
    const digestPaths = new Map([
      [digestOf(mintToken()), 'callers[0].tokens[0].sha256'],
      [digestOf(weak), 'callers[0].tokens[1].sha256'],
    ]);
    expect(guessableTokenProblems(digestPaths)).toEqual([`callers[0].tokens[1].sha256: ${problem}`]);
  });

  it('the list of guessable tokens costs one guess of each kind, however many callers there are', () => {
    // The digests of callers' names are not looked for: that took seconds of the event loop for 10,000 of them.
    expect(guessableTokenProblems(new Map([[digestOf('nightly-job-token'), 'x']]))).toEqual([]);
  });
});

describe('a callers file with a token that can be guessed', () => {
  afterEach(() => {
    vi.doUnmock('../../src/callers/weak-digest.ts');
    vi.resetModules();
  });

  it('a callers file with a guessable token does not stop the start, which never loads the list; the token is refused all the same', async () => {
    let imports = 0;
    vi.resetModules();
    vi.doMock('../../src/callers/weak-digest.ts', (importOriginal) => {
      imports++;
      return importOriginal();
    });
    const { open: openAnew } = await import('../support/callers-fixture.ts');
    const good = mintToken();
    const { authenticator } = openAnew(writeCallers(callers('secret', good)));
    expect(await authenticator.authenticate(bearer(good))).toMatchObject({ by: 'token' });
    expect(() => authenticator.authenticate(bearer('secret'))).toThrow();
    expect(imports).toBe(0);
    authenticator.close();
  });

  it('a callers file with a guessable token is refused as a new version where that token is new', async () => {
    const good = mintToken();
    const file = writeCallers(callers(good));
    const { authenticator, events } = open(file);
    writeCallers(callers(good, 'secret'), file);
    await vi.waitFor(() => expect(events).toHaveLength(1), { timeout: 5_000 });
    expect(events).toEqual([
      { kind: 'version-refused', problems: [`${file}: callers[0].tokens[1].sha256: ${problem}`] },
    ]);
    expect(await authenticator.authenticate(bearer(good))).toMatchObject({ by: 'token' });
  });

  it('a callers file with a guessable token is taken as a new version where that token was there at the start', async () => {
    const [good, other] = [mintToken(), mintToken()];
    const file = writeCallers(callers('secret', good));
    const { authenticator, events } = open(file);
    writeCallers(callers('secret', other), file);
    await vi.waitFor(() => expect(events).toEqual([{ kind: 'reloaded', callers: 1 }]), { timeout: 5_000 });
    expect(await authenticator.authenticate(bearer(other))).toMatchObject({ by: 'token' });
    expect((await refusal(() => authenticator.authenticate(bearer('secret')))).status).toBe(401);
  });
});
