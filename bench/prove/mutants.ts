/**
 * Changes the files that decide, one operator or value at a time (StrykerJS), and counts the changes that the tests of
 * each file's rules notice.
 *
 *   node bench/prove/mutants.ts [FILE…]     files below src/; all of the table where none is named
 *
 * Prints each change that no test noticed, and a line for each file. Exit status 1 where one has less than 90 %.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Suite } from './suite.ts';

/**
 * The tests that own a file's rules, below test/; where none are named, the test of the same name does. `http/header-table.ts`
 * is left out: most of its words say why, and change nothing (of a field that never goes up, `stops` is as good as `ours`).
 */
const owners: Readonly<Record<string, readonly string[]>> = {
  'cache/cache-control.ts': ['cache/cache-control', 'cache/cache-rules'],
  'cache/cache-key.ts': ['cache/cache-key', 'cache/repeated-ids'],
  'cache/cache-rules.ts': ['cache/cache-rules', 'cache/shared-reads'],
  'cache/flow-shares.ts': ['cache/answer-store'],
  'callers/bucket.ts': ['callers/limit'],
  'callers/credential.ts': [],
  'callers/failures.ts': ['callers/failures', 'callers/limit', 'callers/jwt'],
  'callers/jwt-rule.ts': ['callers/jwt-rule', 'callers/callers-file'],
  'edge/request-head.ts': [],
  'exchange/fair-share.ts': ['exchange/fair-share', 'cache/answer-store'],
  'gate/pacer.ts': ['gate/pacer', 'gate/scheduler'],
  'gate/window-limits.ts': [],
  'http/address.ts': ['http/address', 'edge/request-head', 'config/config'],
  'http/fields.ts': ['http/header-table', 'edge/representation', 'upstream/response'],
  'http/limit-fields.ts': ['http/limit-fields', 'http/stated-wait'],
  'http/links.ts': ['http/links', 'upstream/links'],
  'http/percent-encoding.ts': ['callers/credential', 'operations'],
  'http/stated-wait.ts': ['http/stated-wait', 'http/limit-fields'],
  'operations.ts': ['operations', 'documents/openapi'],
  'upstream/circuit-rules.ts': ['upstream/circuit-rules', 'upstream/circuit'],
};

const atLeast = 0.9;
const root = fileURLToPath(new URL('../..', import.meta.url));
const modules = join(root, 'bench/prove/node_modules');

interface Mutant {
  readonly status: string;
  readonly mutatorName: string;
  readonly replacement?: string;
  readonly location: { readonly start: { readonly line: number; readonly column: number } };
}

/** @returns every change of the file and what became of it */
async function mutate(file: string): Promise<readonly Mutant[]> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-mutants-'));
  const report = join(folder, 'report.json');
  const config = join(folder, 'stryker.json');
  writeFileSync(
    config,
    JSON.stringify({
      mutate: [`src/${file}`],
      testRunner: 'vitest',
      plugins: ['@stryker-mutator/vitest-runner'],
      vitest: { configFile: 'bench/prove/vitest.config.ts', related: false },
      // It would read tsconfig.json by functions that TypeScript 7 does not have.
      tsconfigFile: 'none.json',
      reporters: ['json'],
      jsonReporter: { fileName: report },
      ignorePatterns: ['dist', '*.md', 'bench/peers'],
      concurrency: 2,
      timeoutMS: 20_000,
    }),
  );
  const own = file.replace(/\.ts$/, '');
  const names = owners[file] ?? [];
  const tests = (names.length > 0 ? names : [own]).map((name) => `test/${name}.test.ts`);
  try {
    await promisify(execFile)(process.execPath, [join(modules, '.bin/stryker'), 'run', config], {
      cwd: root,
      env: { ...process.env, MUTANT_TESTS: tests.join() },
    });
    const { files } = JSON.parse(readFileSync(report, 'utf8')) as {
      readonly files: Readonly<Record<string, { readonly mutants: readonly Mutant[] }>>;
    };
    return files[`src/${file}`]?.mutants ?? [];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Prints what no test noticed, with the line of the file, and the score. @returns it */
function tell(file: string, mutants: readonly Mutant[]): number {
  const lines = readFileSync(join(root, 'src', file), 'utf8').split('\n');
  const noticed = mutants.filter(({ status }) => status === 'Killed' || status === 'Timeout').length;
  const valid = mutants.filter(({ status }) => !/Error|Ignored/.test(status)).length;
  for (const { status, mutatorName, replacement = '', location } of mutants) {
    if (status !== 'Survived' && status !== 'NoCoverage') continue;
    const { line, column } = location.start;
    process.stdout.write(
      `${file}:${line}:${column} ${mutatorName}: ${lines[line - 1]?.trim()} => ${replacement}\n`,
    );
  }
  process.stdout.write(`${file}: ${noticed} of ${valid}, ${((100 * noticed) / valid).toFixed(1)} %\n`);
  return noticed / valid;
}

const { version } = JSON.parse(readFileSync(join(modules, '@stryker-mutator/core/package.json'), 'utf8')) as {
  readonly version: string;
};
const suite = new Suite(
  'StrykerJS: files that decide, with at least 90 % of their mutants noticed',
  version,
  'the other files that decide, whose tests were not looked at yet, and the table of header fields',
);
const named = process.argv.slice(2);
for (const file of named.length > 0 ? named : Object.keys(owners)) {
  await suite.try(file, async () => {
    const score = tell(file, await mutate(file));
    if (score < atLeast) throw new Error(`less than ${100 * atLeast} %`);
  });
}
suite.end();
