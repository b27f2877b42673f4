/**
 * Clients that others wrote, against the built gateway before the stand-in: schemathesis from `/openapi.json`, Prism as
 * a validating proxy, generated clients that compile and call, and REDbot, which reads the fields of replies.
 */
import { deepEqual, equal, match } from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { findOnPath } from '../../test/support/find-on-path.ts';
import { standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { startDeployed } from '../deployed.ts';
import { freePort, startProgram } from '../process.ts';
import { Suite } from './suite.ts';

const run = promisify(execFile);
const goGenerator = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
const here = import.meta.dirname;
const modules = join(here, 'node_modules');
const libraries = join(here, '../../test/libraries/node_modules');
const python =
  /^#!(\S*python\S*)/.exec(readFileSync(findOnPath('schemathesis') ?? '', 'utf8'))?.[1] ?? 'python3';
const folder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));

const versionOfPython = (name: string): string =>
  execFileSync(python, ['-c', `from importlib.metadata import version; print(version('${name}'))`], {
    encoding: 'utf8',
  }).trim();
const versionOfNpm = (path: string): string =>
  (JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as { version: string }).version;

/** One may do everything; one may list accounts alone; one may ask once. */
const reads = ['/analytics/posts/', '/analytics/reports/:id/'];
const everything = ['list-accounts', 'list-api-keys', ...reads];
const all = enrol({ name: 'reader', operations: everything });
const narrow = enrol({ name: 'narrow', operations: ['list-accounts'] });
const limited = enrol({ name: 'limited', limits: ['1/1h'] });
const callers = [all, narrow, limited].map(({ entry }) => entry);
writeFileSync(join(folder, 'callers.json'), JSON.stringify({ callers }));
writeFileSync(
  join(folder, 'patch.json'),
  JSON.stringify({
    paths: {
      '/analytics/accounts/': {
        get: { parameters: [{ name: 'page', in: 'query', schema: { type: 'integer', minimum: 1 } }] },
      },
    },
  }),
);
const upstream = await startStandIn({ reads, etag: true });
const gateway = await startDeployed({
  folder,
  settings: {
    ADMIN_PORT: 'off',
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEY: standInKey,
    UPSTREAM_READS: reads.join(),
    CALLERS_FILE: join(folder, 'callers.json'),
    OPENAPI_PATCH_FILE: join(folder, 'patch.json'),
  },
  onLine: () => {},
});
const origin = `http://127.0.0.1:${gateway.port}`;
const documentOf = async (token: string): Promise<string> =>
  (await fetch(`${origin}/openapi.json`, { headers: { authorization: `Bearer ${token}` } })).text();
writeFileSync(join(folder, 'openapi.json'), await documentOf(all.token));

try {
  await trySchemathesis();
  await tryPrism();
  await tryGenerated();
  await tryRedbot();
} finally {
  gateway.signal('SIGTERM');
  await gateway.exited;
  await upstream.close();
  rmSync(folder, { recursive: true });
}

function enrol(caller: object): { token: string; entry: object } {
  const token = mintToken();
  return { token, entry: { ...caller, tokens: [{ sha256: digestOf(token) }] } };
}

async function trySchemathesis(): Promise<void> {
  const suite = new Suite(
    'schemathesis: all checks, stateful too',
    versionOfPython('schemathesis'),
    'whether a page that is no number is refused: queries go up as they came, whatever the operator says of them',
  );
  // Every check is on by itself; named on the command line, it would be on for this operation too.
  writeFileSync(
    join(folder, 'schemathesis.toml'),
    '[[operations]]\ninclude-operation-id = "list-accounts"\n[operations.checks]\nnegative_data_rejection.enabled = false\n',
  );
  const words = ['run', `${origin}/openapi.json`, '--continue-on-failure', '--no-color'];
  const seeded = ['--seed', '1', '--max-examples', '100', '--header', `Authorization: Bearer ${all.token}`];
  const { stdout } = await run('schemathesis', [...words, ...seeded], { cwd: folder }).catch(
    (error: { stdout: string }) => error,
  );
  const [, made = '0', passed = '0'] = /(\d+) generated(?:, (\d+) passed)?/.exec(stdout) ?? [];
  if (made !== passed || made === '0') process.stdout.write(stdout);
  suite.count(Number(made), Number(passed));
  suite.end();
}

/** Prism says in a field of the reply where request or reply breaks the document, and refuses such a request. */
async function tryPrism(): Promise<void> {
  const suite = new Suite(
    'Prism between caller and gateway',
    versionOfNpm(join(modules, '@stoplight/prism-cli')),
    'the upstream’s own errors, which pass as they came: the document types every error as a problem',
  );
  // It knows one address for all operations, and the document gives /me another.
  const [api, root] = [await startPrism(`${origin}/api`), await startPrism(origin)];
  const accounts = `${api.url}/analytics/accounts/`;
  const ask = async (address: string, token: string, headers: Record<string, string> = {}) => {
    const reply = await fetch(address, { headers: { 'x-api-key': token, ...headers } });
    const body = await reply.text();
    equal(reply.headers.get('sl-violations'), null);
    equal(/stoplight/.test(body), false, body);
    match(reply.headers.get('via') ?? '', /analytics-gateway/);
    return { status: reply.status, body };
  };
  const rows: readonly [string, number, string, string, Record<string, string>?][] = [
    ['a list', 200, accounts, all.token],
    ['a page of it', 200, `${accounts}?page=2`, all.token],
    ['a parameter in the path', 200, `${api.url}/analytics/reports/r-1/`, all.token],
    ['a copy that still holds', 304, accounts, all.token, { 'if-none-match': '*' }],
    ['no such token', 401, accounts, 'none'],
    ['no grant', 403, `${api.url}/users/api-keys/`, narrow.token],
    ['nothing stored', 504, `${accounts}?x=1`, all.token, { 'cache-control': 'only-if-cached' }],
    ['within the limit', 200, accounts, limited.token],
    ['beyond the limit', 429, accounts, limited.token],
    ['the caller about itself', 200, `${root.url}/me`, all.token],
  ];
  for (const [name, status, address, token, headers] of rows) {
    await suite.try(name, async () => equal((await ask(address, token, headers)).status, status));
  }
  suite.end();
  await api.end();
  await root.end();
}

async function startPrism(target: string) {
  const port = await freePort();
  const words = ['proxy', join(folder, 'openapi.json'), target, '--errors', '--host', '127.0.0.1'];
  const prism = await startProgram({
    command: process.execPath,
    args: [join(modules, '.bin/prism'), ...words, '--port', String(port)],
    speaks: false,
  });
  const url = `http://127.0.0.1:${port}`;
  for (
    let tries = 0;
    !(await fetch(url).then(
      () => true,
      () => false,
    ));
    tries++
  ) {
    if (tries === 300) throw new Error(`Prism does not listen: ${prism.errors()}`);
    await sleep(100);
  }
  return { url, end: prism.end };
}

/** Each makes a client, compiles a program that uses it, and runs the program: two pages, a refusal, and `/me`. */
async function tryGenerated(): Promise<void> {
  const suite = new Suite(
    'generated clients: openapi-typescript, openapi-python-client, oapi-codegen',
    [
      versionOfNpm(join(libraries, 'openapi-typescript')),
      versionOfPython('openapi-python-client'),
      'v2.8.2',
    ].join(),
    'the base address of /me, which no generator takes from the document: the programs give it',
  );
  const env = { ...process.env, ORIGIN: origin, TOKEN: narrow.token };
  for (const [language, make] of Object.entries({
    TypeScript: makeTypeScript,
    Python: makePython,
    Go: makeGo,
  })) {
    await suite.try(language, async () => {
      const own = join(folder, language);
      mkdirSync(own);
      const before = upstream.requests.length;
      const [program = '', ...words] = await make(own);
      const { stdout } = await run(program, words, { cwd: own, env });
      const [first, second, ...rest] = JSON.parse(stdout) as unknown[];
      deepEqual([Number(first) > 0, Number(second) > 0, ...rest], [true, true, 'caller-forbidden', 'narrow']);
      // The first may have been in memory for another language.
      const asked = upstream.requests.slice(before).map(({ target }) => target);
      equal(
        asked.every((target) => /\?page=[12]$/.test(target)),
        true,
        asked.join(),
      );
    });
  }
  suite.end();
}

async function makeTypeScript(own: string): Promise<string[]> {
  symlinkSync(libraries, join(own, 'node_modules'));
  copyFileSync(join(here, 'clients/program.ts.txt'), join(own, 'program.ts'));
  writeFileSync(join(own, 'package.json'), '{"type":"module"}');
  const bin = (name: string): string => join(libraries, name);
  await run(process.execPath, [bin('.bin/openapi-typescript'), '../openapi.json', '-o', 'api.ts'], {
    cwd: own,
  });
  const flags = ['--strict', '--noEmit', '--target', 'esnext', '--module', 'preserve', '--skipLibCheck'];
  await run(
    process.execPath,
    [bin('typescript/bin/tsc'), ...flags, '--allowImportingTsExtensions', 'program.ts'],
    {
      cwd: own,
    },
  );
  await build({
    input: join(own, 'program.ts'),
    platform: 'node',
    output: { file: join(own, 'program.mjs') },
    logLevel: 'silent',
  });
  return [process.execPath, 'program.mjs'];
}

async function makePython(own: string): Promise<string[]> {
  copyFileSync(join(here, 'clients/program.py'), join(own, 'program.py'));
  const words = ['generate', '--path', '../openapi.json', '--output-path', 'api', '--meta', 'none'];
  await run('openapi-python-client', words, { cwd: own });
  await run(python, ['-m', 'mypy', '--strict', '--follow-imports=silent', 'program.py'], { cwd: own });
  return [python, 'program.py'];
}

async function makeGo(own: string): Promise<string[]> {
  mkdirSync(join(own, 'api'));
  copyFileSync(join(here, 'clients/main.go'), join(own, 'main.go'));
  const words = ['-generate', 'types,client', '-package', 'api', '-o', 'api/api.go', '../openapi.json'];
  await run('go', ['run', goGenerator, ...words], { cwd: own });
  await run('go', ['mod', 'init', 'client'], { cwd: own });
  await run('go', ['mod', 'tidy'], { cwd: own });
  await run('go', ['build', '-o', 'program', '.'], { cwd: own });
  return [join(own, 'program')];
}

async function tryRedbot(): Promise<void> {
  const suite = new Suite(
    'REDbot, which reads the fields of replies',
    versionOfPython('redbot'),
    'its warning that Keep-Alive is deprecated: clients learn from it how long a connection stays open',
  );
  const paths = [
    '/api/analytics/accounts/',
    '/api/nothing',
    '/me',
    '/openapi.json',
    '/docs',
    '/problems',
    '/',
  ];
  for (const path of paths) {
    await suite.try(path, async () => {
      const env = { ...process.env, TOKEN: all.token };
      const { stdout } = await run(python, [join(here, 'clients/notes.py'), origin + path], { env });
      equal(stdout.replaceAll(/.*Keep-Alive header is deprecated.*\n/g, ''), '');
    });
  }
  suite.end();
}
