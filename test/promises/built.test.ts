import { execFile } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { variableOf } from '../../src/config/workspaces.ts';
import { version } from '../../src/version.ts';
import { accounts, ask } from '../support/gateway.ts';
import { copyOfProgram } from '../support/image.ts';
import { imageFlags } from '../support/image-flags.ts';
import { run, type Served, serve, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';
import { redisProgram, startRedis } from '../support/redis.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { folder, main } = copyOfProgram();

describe('a built gateway', () => {
  const owner = sharedOwner();
  let gateway: Served;
  beforeAll(async () => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), ADMIN_PORT: '0' };
    gateway = await serve(owner, { main, flags: imageFlags(), settings });
  });

  it('the built gateway shows the console, charts included', async () => {
    const [, port] = await gateway.printed(/"adminUrl":"http:[^"]*:(\d+)"/);
    const page = await ask({ host: '127.0.0.1', port: Number(port) }, '/', {});
    expect(page.status).toBe(200);
    expect(page.body.toString()).toContain('u-wrap');
    expect(readFileSync(join(folder, 'dist/LICENSES.txt'), 'utf8')).toMatch(/^uplot \d/m);
  });

  it('the built gateway carries its documents', async () => {
    for (const [path, text] of [
      ['/', '"openapi": "/openapi.json"'],
      ['/openapi.json', '"openapi": "3.1.0"'],
      ['/docs', '</html>'],
      ['/problems', 'caller-forbidden'],
    ] as const) {
      const came = await gateway.ask(path);
      expect([came.status, came.body.toString().includes(text)], path).toEqual([200, true]);
    }
    // Each is in a part of its own, which the start does not load.
    const parts = readdirSync(join(folder, 'dist/parts'));
    expect(parts).toEqual(expect.arrayContaining(['api-page.js', 'openapi.js', 'pages.js']));
  });

  // The last one: it ends.
  it('the built gateway needs nothing beside it to answer', async () => {
    const [one, other] = [await gateway.ask(accounts), await gateway.ask(accounts)];
    expect(one.status).toBe(200);
    expect(other.headers['cache-status']).toMatch(/^analytics-gateway; hit/);
    expect((await gateway.ask('/readyz')).status).toBe(200);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    expect(gateway.stderr()).toBe('');
  });
});

describe.concurrent('what is built needs nothing beside it', () => {
  it('a hundred idle workspaces take less than 20 MiB more than one, and each answers', async (owner) => {
    const standIn = await standInFor(owner);
    const residentWith = async (count: number): Promise<number> => {
      const names = Array.from({ length: count }, (_, index) => `workspace-${index}`);
      const own = names.flatMap((name, index) => {
        const key = `${standInKey}${index}`;
        standIn.keys.add(key);
        return [
          [variableOf('UPSTREAM_API_KEY_FROM', name), `env:KEY_${index}`],
          [`KEY_${index}`, key],
        ];
      });
      const gateway = await serve(owner, {
        main,
        flags: imageFlags(),
        settings: {
          ...settingsFor(standIn.url),
          ...Object.fromEntries(own),
          ...{ UPSTREAM_API_KEY: '', WORKSPACES: names.join(',') },
        },
      });
      for (const name of [names[0], names.at(-1)]) {
        expect((await gateway.ask(`/w/${name}${accounts}`)).status).toBe(200);
      }
      // What the start left behind is collected meanwhile.
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      const [, kibibytes] =
        /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${gateway.pid}/status`, 'utf8')) ?? [];
      gateway.signal('SIGTERM');
      await gateway.exited;
      return Number(kibibytes) / 1_024;
    };
    // What a start leaves uncollected differs by some MiB from one to the next.
    let least = Number.POSITIVE_INFINITY;
    for (let tries = 0; tries < 3 && least >= 20; tries++) {
      const one = await residentWith(1);
      least = Math.min(least, (await residentWith(100)) - one);
    }
    expect(least).toBeLessThan(20);
  });

  it.skipIf(redisProgram === undefined)(
    'what is built needs nothing beside it to share a store with others',
    async (owner) => {
      const standIn = await standInFor(owner);
      await using redis = await startRedis();
      const gateway = await serve(owner, {
        main,
        flags: imageFlags(),
        settings: { ...settingsFor(standIn.url), SHARED_STORE: redis.address },
      });
      await vi.waitFor(() => expect(gateway.stdout()).toContain('the shared store is in use'), {
        timeout: 20_000,
      });
      expect((await gateway.ask(accounts)).status).toBe(200);
      gateway.signal('SIGTERM');
      expect(await gateway.exited).toBe(0);
    },
  );

  it.for([
    [['--version'], [`${version}\n`]],
    [['settings'], ['UPSTREAM_BASE_URL  (required)']],
    [
      ['demo', '--once'],
      ['X-API-Key', 'both built'],
    ],
  ] as [string[], string[]][])(
    'what is built needs nothing beside it to run %j',
    async ([command, texts], owner) => {
      const { status, stdout, stderr } = await run(owner, command, { main });
      for (const text of texts) expect(stdout).toContain(text);
      expect(stderr).toBe('');
      expect(status).toBe(0);
    },
  );

  it('the built gateway knows without other files what .env must have', async (owner) => {
    const cwd = temporaryFolder(owner);
    writeFileSync(join(cwd, '.env'), 'PORT=0\n');
    const { status, stderr } = await run(owner, [], { main, cwd });
    expect(stderr).toContain('UPSTREAM_BASE_URL is required');
    expect(status).toBe(2);
  });

  it('the built gateway refuses an inspector before anything else is loaded', async (owner) => {
    const settings = { ...settingsFor('http://127.0.0.1:9/api'), NODE_OPTIONS: '--inspect=127.0.0.1:0' };
    const { status, stderr } = await run(owner, [], { main, settings });
    expect(stderr).toContain('not with a secret in memory');
    expect(status).toBe(2);
  });

  // Where undici is loaded, HTTP/2 is too.
  it.for([
    ['healthcheck', "Node's fetch", 'NativeModule internal/deps/undici/undici'],
    ['healthcheck', 'TLS', 'NativeModule tls'],
    ['check', 'what asks the upstream', 'NativeModule http2'],
    ['serve', 'what asks the upstream', 'NativeModule http2'],
  ] as const)('the built %s does not load %s before it is needed', async ([command, , module], owner) => {
    const listing = 'process.on("exit",()=>process._rawDebug(process.moduleLoadList.join("\\n")))';
    const { stderr } = await run(owner, [command], {
      main,
      flags: ['--import', `data:text/javascript,${encodeURIComponent(listing)}`],
      settings: { ...settingsFor('http://127.0.0.1:9/api'), CACHE_TTL: 'wrong' },
    });
    const loaded = stderr.split('\n');
    expect(loaded).toContain(command === 'healthcheck' ? 'NativeModule http' : 'NativeModule crypto');
    expect(loaded).not.toContain(module);
  });

  it.for([
    ['aws-sm:name', '@aws-sdk/client-secrets-manager@3'],
    ['gcp-sm:projects/p/secrets/s', '@google-cloud/secret-manager@7'],
  ] as const)(
    'what is built needs the library that %s is read with, and nothing else beside it',
    async ([from, library], owner) => {
      const { UPSTREAM_API_KEY: _, ...settings } = settingsFor('http://127.0.0.1:9/api');
      const { status, stderr } = await run(owner, [], {
        main,
        settings: { ...settings, UPSTREAM_API_KEY_FROM: from },
      });
      expect(stderr).toMatch(new RegExp(`npm install --prefix ${folder}/libraries ${library}$`, 'm'));
      expect(status).toBe(2);
    },
  );

  it('the built sources are kept by V8 at one byte per character', () => {
    const parts = readdirSync(join(folder, 'dist/parts')).map((name) => join(folder, 'dist/parts', name));
    for (const file of [main, ...parts]) expect(readFileSync(file, 'latin1'), file).toMatch(/^[\0-\x7f]*$/);
  });

  it('the built gateway can be made into an image', () => {
    const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, names = '']) =>
      names.split(' '),
    );
    const allowed = readFileSync(join(root, '.dockerignore'), 'utf8').trim().split('\n');
    expect(allowed[0]).toBe('*');
    expect(copied).toContain('build.ts');
    for (const name of copied) {
      expect(allowed, name).toContain(`!${name}`);
      expect(existsSync(join(root, name)), name).toBe(true);
    }
    expect(allowed.slice(1).sort()).toEqual([...new Set(copied)].map((name) => `!${name}`).sort());
  });

  it('the build fails for a library that has no text of its licence', async (owner) => {
    const clone = temporaryFolder(owner);
    for (const name of [
      'src',
      'package.json',
      'package-lock.json',
      'LICENSE',
      'node_modules/playwright-core/LICENSE',
    ])
      cpSync(join(root, name), join(clone, name), { recursive: true });
    const { components } = JSON.parse(readFileSync(join(folder, 'dist/sbom.cdx.json'), 'utf8')) as {
      components: readonly { readonly name: string }[];
    };
    for (const { name } of components)
      cpSync(join(root, 'node_modules', name), join(clone, 'node_modules', name), { recursive: true });
    writeFileSync(join(clone, 'node_modules/hono/LICENSE'), ' \n');
    const build = promisify(execFile)(process.execPath, [join(root, 'build.ts'), 'out'], { cwd: clone });
    await expect(build).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining('hono has no text of its licence'),
    });
  });

  it('the built gateway says whose work it holds, and its package makes npm install none of it', () => {
    const read = (path: string): string => readFileSync(path, 'utf8');
    const imported = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts'))
      .flatMap((path) => [...read(join(root, 'src', path)).matchAll(/(?:from |import\()'([^.'\s][^'\s]*)'/g)])
      .map(([, name = '']) => /^(?:@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? '')
      // It makes the build.
      .filter((name) => !name.startsWith('node:') && name !== 'rolldown');
    const licences = read(join(folder, 'dist/LICENSES.txt'));
    const { components } = JSON.parse(read(join(folder, 'dist/sbom.cdx.json'))) as {
      components: readonly {
        readonly name: string;
        readonly hashes: readonly { readonly content: string }[];
      }[];
    };
    expect(imported.length).toBeGreaterThan(10);
    for (const name of imported) {
      expect(licences).toMatch(new RegExp(`^${name} \\d`, 'm'));
      expect(components.map((one) => one.name)).toContain(name);
    }
    // Each has a text, and so have the parts that a library has taken from others.
    const texts = licences.split(/^(?=\S+ \d\S* \([\w.-]+\)$)/m);
    expect(texts.map((text) => text.split(' ')[0])).toEqual(components.map((one) => one.name));
    for (const text of texts) expect(text).toMatch(/^\S.*\n\n[\s\S]*(?:copyright|licen[cs]e)[\s\S]{500}/i);
    for (const whose of [
      'Redis, inc.',
      'Fedor Indutny',
      'Salvatore Sanfilippo',
      'Luigi Pinca',
      'Apache License',
    ]) {
      expect(licences).toContain(whose);
    }
    for (const { hashes } of components) expect(hashes[0]?.content).toMatch(/^[0-9a-f]{128}$/);
    expect(JSON.parse(read(join(root, 'package.json')))).not.toHaveProperty('dependencies');
    expect(readdirSync(join(folder, 'dist')).sort()).toEqual([
      'LICENSES.txt',
      'client',
      'main.js',
      'parts',
      'sbom.cdx.json',
    ]);
  });
});
