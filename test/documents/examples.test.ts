import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { startPair, type TestGateway } from '../support/gateway.ts';

const run = promisify(execFile);

/** How a reader runs an example. */
const runners: Readonly<Record<string, (text: string) => [program: string, args: string[]]>> = {
  curl: (text) => ['sh', ['-c', text]],
  javascript: (text) => [process.execPath, ['--input-type=module', '--eval', text]],
  python: (text) => ['python3', ['-c', text]],
};

const found: Readonly<Record<string, boolean>> = {
  curl: findOnPath('curl') !== undefined,
  javascript: true,
  python: findOnPath('python3') !== undefined,
};

/** The examples of one language, as they stand in the page. */
async function examplesIn(gateway: TestGateway, language: string): Promise<string[]> {
  const page = (await gateway.ask('/docs')).body.toString();
  const blocks = page.matchAll(new RegExp(`<div class="example ${language}"><pre[^>]*><code>([^<]*)`, 'g'));
  return [...blocks].map(([, text = '']) =>
    text.replace(/&(lt|gt|amp|quot|#39);/g, (_all, name: string) => characters[name] ?? ''),
  );
}

const characters: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', '#39': "'" };

/** What an example prints when it is run as it stands. */
async function runAsItStands(language: string, text: string, token: string | undefined): Promise<string> {
  const [program, args] = runners[language]?.(text) ?? ['', []];
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, ...(token === undefined ? {} : { ANALYTICS_TOKEN: token }) };
  return (await run(program, args, { env, timeout: 60_000 })).stdout;
}

describe('the examples of the API page', () => {
  it.runIf(process.env['REQUIRE_EXAMPLES'])('curl and Python are there to run the examples with', () => {
    expect(found).toEqual({ curl: true, javascript: true, python: true });
  });

  for (const language of Object.keys(runners)) {
    it.runIf(found[language])(`the examples in ${language} run as they stand, with a token`, async () => {
      const operations = ['list-accounts', 'list-api-keys'];
      const { token, entry } = enrol('reports', { operations });
      const gateway = await startWith([entry]);
      const { ask } = gateway;
      const headers = bearer(token);
      const wanted: string[] = [];
      for (const path of ['/api/analytics/accounts/', '/api/users/api-keys/']) {
        const [first] = JSON.parse((await ask(path, { headers })).body.toString()) as { id: string }[];
        wanted.push(first?.id ?? 'an id');
      }
      const examples = await examplesIn(gateway, language);
      expect(examples).toHaveLength(2);
      for (const [at, text] of examples.entries()) {
        expect(text).not.toContain(token);
        const printed = await runAsItStands(language, text, token);
        expect(printed).toContain(wanted[at]);
      }
    });

    it.runIf(found[language])(
      `the examples in ${language} run without a token where none is needed`,
      async () => {
        const gateway = await startPair({ UPSTREAM_READS: '/analytics/reports/:id/' });
        const headers = { 'content-type': 'application/json' };
        gateway.standIn.behave({ status: 200, headers, body: '{"came": "from above"}' });
        const examples = await examplesIn(gateway, language);
        expect(examples).toHaveLength(3);
        for (const text of examples) {
          expect(text).not.toContain('TOKEN');
          expect(await runAsItStands(language, text, undefined)).toContain('from above');
        }
        expect(gateway.standIn.requests.map(({ target }) => target)).toContain('/api/analytics/reports/1/');
      },
    );
  }
});
