import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run, temporaryFolder } from '../support/process.ts';

describe.concurrent('the token command finds its file', () => {
  it('in .env, as the gateway does', async (context) => {
    const cwd = temporaryFolder(context);
    writeFileSync(join(cwd, '.env'), 'UPSTREAM_BASE_URL=http://127.0.0.1:9/api\nCALLERS_FILE=./mine.json\n');
    const { status, stdout } = await run(context, ['token', 'reports-script'], { cwd });
    expect({ status, made: existsSync(join(cwd, 'mine.json')) }).toEqual({ status: 0, made: true });
    expect(stdout).toMatch(/^wag_\S+\n$/);
  });

  it('and says what is missing where there is none', async (context) => {
    const { status, stderr } = await run(context, ['token', 'list']);
    expect(status).toBe(2);
    expect(stderr).toContain('CALLERS_FILE');
  });
});
