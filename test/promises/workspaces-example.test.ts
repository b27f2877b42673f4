/** The four files of docs/examples/workspaces, as a reader would use them: with their own keys, tokens and addresses. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { root } from '../support/documents.ts';
import { ask } from '../support/gateway.ts';
import { standInFor, start, temporaryFolder } from '../support/process.ts';
import { accountsOf, keyOf } from '../support/workspaces.ts';

const read = (file: string): string => readFileSync(join(root, 'docs/examples/workspaces', file), 'utf8');

describe.concurrent('the example with two workspaces', () => {
  it('the example serves both, each with its key, to the callers that are granted them', async (owner) => {
    const [emea, apac] = [
      await standInFor(owner, { key: keyOf('emea') }),
      await standInFor(owner, { key: keyOf('apac') }),
    ];
    const folder = temporaryFolder(owner);
    const write = (file: string, text: string): void => writeFileSync(join(folder, file), text);
    write('emea.key', read('emea.key').replace('put-the-key-of-emea-here', keyOf('emea')));
    write('apac.key', read('apac.key').replace('put-the-key-of-apac-here', keyOf('apac')));
    const tokens = [mintToken(), mintToken()];
    let at = 0;
    write(
      'callers.json',
      read('callers.json').replaceAll(/[0-9a-f]{64}/g, () => digestOf(tokens[at++] ?? '')),
    );
    const settings = read('gateway.env')
      .replace('https://analytics.example.com/api', emea.url)
      .replace('https://apac.analytics.example.com/api', apac.url)
      .replaceAll('/run/secrets', folder);
    write('gateway.env', `${settings}PORT=0\nUPSTREAM_API_KEY_CHECK=off\n`);

    const running = start(owner, ['serve', '--env-file', 'gateway.env'], { cwd: folder });
    const [, port] = await running.printed(/"url":"http:[^"]*:(\d+)"/);
    const statusOf = async (token: string | undefined, name: string): Promise<number> => {
      const headers = { 'x-api-key': token ?? '' };
      return (await ask({ host: '127.0.0.1', port: Number(port) }, accountsOf(name), { headers })).status;
    };
    const [reports, dashboard] = tokens;
    expect([await statusOf(reports, 'emea'), await statusOf(reports, 'apac')]).toEqual([200, 403]);
    expect([await statusOf(dashboard, 'emea'), await statusOf(dashboard, 'apac')]).toEqual([200, 200]);
    // The only one that it is granted.
    expect(await statusOf(reports, '')).toBe(200);
    expect(emea.requests.map(({ key }) => key)).toEqual([keyOf('emea')]);
    expect(apac.requests.map(({ key }) => key)).toEqual([keyOf('apac')]);
  });

  it('the example as it stands has placeholders for keys, which no upstream takes', () => {
    expect([read('emea.key'), read('apac.key')]).toEqual([
      'put-the-key-of-emea-here\n',
      'put-the-key-of-apac-here\n',
    ]);
  });
});
