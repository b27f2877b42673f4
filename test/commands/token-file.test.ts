import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run, temporaryFolder } from '../support/process.ts';

describe.concurrent('the callers file of the token command', () => {
  it('the token command finds the callers file in .env, as the gateway does', async (context) => {
    const cwd = temporaryFolder(context);
    writeFileSync(join(cwd, '.env'), 'UPSTREAM_BASE_URL=http://127.0.0.1:9/api\nCALLERS_FILE=./mine.json\n');
    const { status, stdout } = await run(context, ['token', 'create', 'reports-script'], { cwd });
    expect({ status, made: existsSync(join(cwd, 'mine.json')) }).toEqual({ status: 0, made: true });
    expect(stdout).toMatch(/^wag_\S+\n$/);
  });

  it('the token command takes workspaces, further reads and the callers file from the file of --env-file', async (context) => {
    const cwd = temporaryFolder(context);
    const lines = ['WORKSPACES=emea,apac', 'UPSTREAM_READS=/analytics/posts/', 'CALLERS_FILE=mine.json'];
    writeFileSync(join(cwd, 'team.env'), lines.join('\n'));
    const what = ['--operation', '/analytics/posts/', '--workspace', 'emea'];
    const words = ['token', 'create', 'a', ...what, '--env-file', 'team.env'];
    expect(await run(context, words, { cwd })).toMatchObject({ status: 0 });
    expect(JSON.parse(readFileSync(join(cwd, 'mine.json'), 'utf8')).callers).toMatchObject([
      { name: 'a', operations: ['/analytics/posts/'], workspaces: ['emea'] },
    ]);
    const missing = await run(context, ['token', 'list', '--env-file', 'none.env'], { cwd });
    expect(missing.status).toBe(2);
    expect(missing.stderr).toMatch(/^--env-file: the file \S+none\.env can't be read \(ENOENT\).*\n$/);
  });

  it('the token command says which setting is missing where no callers file is named', async (context) => {
    const { status, stderr } = await run(context, ['token', 'list']);
    expect(status).toBe(2);
    expect(stderr).toContain('CALLERS_FILE');
  });
});

describe.concurrent('the words of the command line', () => {
  it.for([
    [['token', 'ls'], 'did you mean "list"?'],
    [['token', 'lst', '--operation', 'list-api-keys'], 'did you mean "list"?'],
    [['token', 'remov', 'a'], 'did you mean "remove"?'],
    [['token', 'reports-script', '--expires', '90d'], 'did you mean "create <caller>"?'],
    [['token', 'delete', 'alice'], 'did you mean "remove", or "revoke" for a token alone?'],
    [['token', 'rm', 'alice'], 'did you mean "remove", or "revoke" for a token alone?'],
    [['token', 'del', 'alice'], 'did you mean "remove", or "revoke" for a token alone?'],
    [['token', 'obliterate', 'alice'], 'did you mean "create <caller>"?'],
    [['token'], 'create [options] <caller>'],
    [['token', 'create'], "missing required argument 'caller'"],
  ] as const)(
    'the words %j end with status 2 and leave the callers file alone',
    async ([args, message], context) => {
      const cwd = temporaryFolder(context);
      const file = join(cwd, 'callers.json');
      writeFileSync(file, '{"callers":[]}');
      const { status, stdout, stderr } = await run(context, [...args], {
        cwd,
        settings: { CALLERS_FILE: file },
      });
      expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
      expect(stderr).toContain(message);
      if (args[1] !== undefined) expect(stderr).not.toContain(`create ${args[1]}`);
      expect(readFileSync(file, 'utf8')).toBe('{"callers":[]}');
    },
  );

  it('a misspelled command is answered with the right one', async (context) => {
    const { status, stdout, stderr } = await run(context, ['chek']);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain(`unknown command 'chek' (did you mean "check"?)`);
  });

  it('the token commands work one after another through the life of a caller', async (context) => {
    const cwd = temporaryFolder(context);
    const settings = { CALLERS_FILE: join(cwd, 'callers.json') };
    const token = (...args: string[]) => run(context, ['token', ...args], { cwd, settings });
    expect((await token('create', 'a', '--expires', 'never')).stdout).toMatch(/^wag_\S+\n$/);
    expect((await token('grant', 'a', 'list-api-keys')).stderr).toContain('list-accounts, list-api-keys');
    expect((await token('deny', 'a', 'list-accounts')).stderr).toContain('a now may do: list-api-keys');
    expect((await token('list')).stdout).toMatch(/^a +[0-9a-f]{12} +never +newest +- +list-api-keys$/m);
    expect((await token('revoke', 'a')).status).toBe(0);
    expect((await token('remove', 'a')).status).toBe(0);
    expect(JSON.parse(readFileSync(settings.CALLERS_FILE, 'utf8'))).toEqual({ callers: [] });
  });
});
