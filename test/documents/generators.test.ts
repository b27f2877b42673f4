import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { describe, expect, it, onTestFinished } from 'vitest';
import { describeApi } from '../../src/documents/openapi.ts';
import { patchDocument } from '../../src/documents/openapi-patch.ts';
import { specifiedOperations } from '../../src/operations.ts';
import { hasLibraries } from '../libraries/import-library.ts';

const run = promisify(execFile);
const modules = join(import.meta.dirname, '../libraries/node_modules');

/** What an operator adds who knows that lists have pages. */
const members = {
  paths: {
    '/analytics/accounts/': {
      get: {
        parameters: [{ name: 'page', in: 'query', description: 'Which page.', schema: { type: 'integer' } }],
      },
    },
  },
};

interface Generator {
  /** Its command, run in a folder with `openapi.json`. */
  readonly command: readonly [program: string, ...args: string[]];
  readonly config?: readonly [file: string, text: string];
  /** A program that makes the natural call of page 2, and prints the code of a problem. `BASE` is the base address. */
  readonly program: string;
}

const generators: Readonly<Record<string, Generator>> = {
  'openapi-typescript with openapi-fetch': {
    command: ['openapi-typescript', 'openapi.json', '-o', 'api.ts'],
    program: `import createClient from 'openapi-fetch';
import type { paths } from './api.ts';
const client = createClient<paths>({ baseUrl: BASE });
const { data, error } = await client.GET('/analytics/accounts/', { params: { query: { page: 2 } } });
if (error === undefined) console.log(JSON.stringify(data));
else {
  const code: string = error.code;
  console.log(code);
}`,
  },
  orval: {
    command: ['orval', '--config', 'orval.config.mjs'],
    config: [
      'orval.config.mjs',
      `export default { api: { input: './openapi.json', output: { target: './api.ts', client: 'fetch', baseUrl: BASE } } };`,
    ],
    program: `import { listAccounts } from './api.ts';
const reply = await listAccounts({ page: 2 });
if (reply.status === 200) console.log(JSON.stringify(reply.data));
else if (reply.status !== 304) {
  const code: string = reply.data.code;
  console.log(code);
}`,
  },
  'hey-api': {
    command: ['openapi-ts', '--input', 'openapi.json', '--output', 'api', '--no-log-file'],
    program: `import { listAccounts } from './api/index.ts';
import { client } from './api/client.gen.ts';
client.setConfig({ baseUrl: BASE });
const { data, error } = await listAccounts({ query: { page: 2 } });
if (error === undefined) console.log(JSON.stringify(data));
else {
  const code: string = error.code;
  console.log(code);
}`,
  },
};

const compilerOptions = {
  strict: true,
  noEmit: true,
  target: 'esnext',
  module: 'preserve',
  lib: ['esnext', 'dom', 'dom.iterable'],
  types: [],
  allowImportingTsExtensions: true,
  skipLibCheck: true,
};

/** Answers page 2 once, then with a problem, and keeps what was asked for. */
async function startGateway() {
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    const isFirst = asked.push(request.url) === 1;
    response.writeHead(isFirst ? 200 : 429, {
      'content-type': isFirst ? 'application/json' : 'application/problem+json',
    });
    response.end(JSON.stringify(isFirst ? ['second page'] : { code: 'caller-rate-limited' }));
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  return { asked, base: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api` };
}

describe.skipIf(!hasLibraries)('clients that are generated from the API document', () => {
  it.each(Object.keys(generators))(
    'a client made by %s reads page 2 by its natural call, and knows the code of a problem',
    async (name) => {
      const { command, config, program } = generators[name] ?? expect.unreachable();
      const { asked, base } = await startGateway();
      const folder = mkdtempSync(join(tmpdir(), 'gateway-generated-'));
      onTestFinished(() => rmSync(folder, { recursive: true }));
      symlinkSync(modules, join(folder, 'node_modules'));
      const own = (text: string): string => text.replaceAll('BASE', JSON.stringify(base));
      const document = patchDocument(
        describeApi({ operations: specifiedOperations, admitsAnonymous: true }),
        { members },
      );
      writeFileSync(join(folder, 'openapi.json'), JSON.stringify(document));
      writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
      if (config !== undefined) writeFileSync(join(folder, config[0]), own(config[1]));
      mkdirSync(join(folder, 'home'));
      const [tool, ...args] = command;
      const env = { PATH: process.env['PATH'], HOME: join(folder, 'home'), DO_NOT_TRACK: '1', CI: 'true' };
      const options = { cwd: folder, env, timeout: 120_000 };
      await run(process.execPath, [join(modules, '.bin', tool), ...args], options);
      writeFileSync(join(folder, 'program.ts'), own(program));
      writeFileSync(
        join(folder, 'tsconfig.json'),
        JSON.stringify({ compilerOptions, files: ['program.ts'] }),
      );
      const checked = await run(process.execPath, [join(modules, 'typescript/bin/tsc')], options).catch(
        (error: { stdout: string }) => error,
      );
      expect(checked.stdout).toBe('');
      await build({
        input: join(folder, 'program.ts'),
        platform: 'node',
        output: { file: join(folder, 'program.mjs') },
        logLevel: 'silent',
      });
      const runs = [];
      for (let round = 0; round < 2; round++)
        runs.push((await run(process.execPath, ['program.mjs'], options)).stdout);
      expect(runs).toEqual(['["second page"]\n', 'caller-rate-limited\n']);
      expect(asked).toEqual(Array(2).fill('/api/analytics/accounts/?page=2'));
    },
    180_000,
  );
});
