import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type AppOptions, inboundLayers } from '../src/app.ts';
import { outboundLayers } from '../src/pipeline.ts';
import {
  codeOf,
  cyclesOf,
  filesGraph,
  importsOf,
  levelsOf,
  roomOf,
  roomsGraph,
} from './support/import-graph.ts';

const root = join(import.meta.dirname, '..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'))
  .map((path) => {
    const text = read(join('src', path));
    return { path: path.replaceAll('\\', '/'), text, code: codeOf(text) };
  });
const architecture = read('ARCHITECTURE.md');

/** The table of rooms as ARCHITECTURE.md has it. */
function rooms(): Map<string, Set<string>> {
  const rows =
    architecture
      .split('## Rooms')[1]
      ?.split('\n')
      .filter((line) => line.startsWith('| `')) ?? [];
  const table = new Map<string, Set<string>>();
  for (const row of rows) {
    const [, names = '', , may = ''] = row.split('|');
    for (const [, name = ''] of names.matchAll(/`([^`]+)`/g)) {
      // A room may have two rows, so that a row fits the width of the page.
      const imported = [...may.matchAll(/`([^`]+)`|ground/g)].map(([all, one = all]) => one);
      table.set(name, new Set([...(table.get(name) ?? []), ...imported]));
    }
  }
  return table;
}

describe('ARCHITECTURE.md is true', () => {
  const table = rooms();
  it('every file belongs to a room of the table, and every room exists', () => {
    const found = new Set(sources.map(({ path }) => roomOf(path)));
    expect([...found].sort()).toEqual([...table.keys()].sort());
  });

  const ground = [...table].filter(([, may]) => may.has('ground')).map(([room]) => room);

  it.each(sources.map(({ path }) => path))('%s imports only what its room may', (path) => {
    const room = roomOf(path);
    const strangers = importsOf(sources.find((source) => source.path === path) ?? expect.unreachable())
      .map((target) => roomOf(target))
      .filter((target) => target !== room && !ground.includes(target) && !table.get(room)?.has(target));
    expect(strangers).toEqual([]);
  });

  it.each([
    ['admin', ['cache', 'gate', 'upstream', 'key', 'callers']],
    ['edge', ['cache', 'gate', 'upstream']],
  ])('%s/ imports types alone of the rooms %j', (room, others) => {
    const values = new RegExp(`^import (?!type\\b)[^;]*'\\.\\./(?:${others.join('|')})/[^;]*;`, 'gm');
    const acting = sources
      .filter(({ path }) => path.startsWith(`${room}/`))
      .flatMap(({ path, code }) => [...code.matchAll(values)].map(([line]) => `${path}: ${line}`));
    expect(acting).toEqual([]);
  });

  /** Stands for options that a list of layers is made with: the layers are not run. */
  const unused: unknown = new Proxy(() => unused, {
    get: (_target, name) => (name === 'operations' ? [] : unused),
    apply: () => unused,
  });

  it('the inbound order is the one in app.ts', () => {
    const { operations } = inboundLayers(unused as AppOptions);
    expect(listed('Inbound')).toEqual([...Object.keys(operations), 'forward']);
  });

  it('a layer that counts is made once for all routes, so that its limit is one', () => {
    const { everyRequest, callers, operations } = inboundLayers(unused as AppOptions);
    expect(operations).toMatchObject(callers);
    for (const [name, layer] of Object.entries(everyRequest)) {
      expect(operations, name).toHaveProperty(name, layer);
      expect(callers, name).toHaveProperty(name, layer);
    }
  });

  it('the outbound order is the one in pipeline.ts', () => {
    const layers = outboundLayers(unused as Parameters<typeof outboundLayers>[0]);
    expect(listed('Outbound')).toEqual(Object.keys(layers));
  });

  it('every file that ARCHITECTURE.md names exists', () => {
    const named = [
      ...architecture.matchAll(
        /`((?:src\/|admin\/|edge\/|cache\/|gate\/|upstream\/|callers\/|key\/|test\/|stand-in\/|commands\/)[\w./-]+\.ts)`/g,
      ),
    ].map(([, path = '']) => path);
    const exists = (path: string): boolean =>
      existsSync(join(root, path)) || existsSync(join(root, 'src', path));
    expect(named.filter((path) => !exists(path))).toEqual([]);
  });

  function listed(order: string): string[] {
    const block = architecture.split(`${order}, in`)[1]?.split(/\n\n(?!\d)/)[0] ?? '';
    return [
      ...(architecture
        .slice(architecture.indexOf(block))
        .split('\n\n')[1]
        ?.matchAll(/^\d+\. `(\w+)`/gm) ?? []),
    ].map(([, name = '']) => name);
  }
});

describe('documents/ is loaded when it is read', () => {
  const statics = (code: string): string[] =>
    [...code.matchAll(/^import (?!type\b)[^;]*?from '([^']+)'/gm)].map(([, target = '']) => target);

  it('of documents/ only its routes are loaded with the gateway, and they load the rest when it is asked for', () => {
    const loaded = sources.flatMap(({ path, code }) =>
      path.startsWith('documents/') ? [] : statics(code).filter((target) => target.includes('/documents/')),
    );
    expect(loaded).toEqual(['./documents/document-routes.ts']);
    const routes = sources.find(({ path }) => path === 'documents/document-routes.ts')?.code ?? '';
    expect(statics(routes).filter((target) => target.startsWith('./') || target.includes('hono'))).toEqual(
      [],
    );
    expect(routes).toContain("await import('./api-page.ts')");
  });
});

describe('the graph of imports, types included', () => {
  it('no file of src/ imports itself, directly or through other files', () => {
    expect(cyclesOf(filesGraph(sources))).toEqual([]);
  });

  it('no room imports a room above it', () => {
    expect(cyclesOf(roomsGraph(sources))).toEqual([]);
  });

  it('the table in ARCHITECTURE.md lists a room above those that it may import, and only what is imported', () => {
    const graph = roomsGraph(sources);
    const order = [...rooms().keys()];
    for (const [room, may] of rooms()) {
      const named = [...may].filter((other) => other !== 'ground');
      const climbing = named.filter((other) => order.indexOf(other) < order.indexOf(room));
      const unused = named.filter((other) => !graph.get(room)?.has(other));
      expect({ room, climbing, unused }).toEqual({ room, climbing: [], unused: [] });
    }
  });

  it('there are at most 28 rooms, on at most nine levels, and at most eight files that stand alone', () => {
    const graph = roomsGraph(sources);
    expect(graph.size).toBeLessThanOrEqual(28);
    expect(levelsOf(graph)).toBeLessThanOrEqual(9);
    expect([...graph.keys()].filter((room) => room.endsWith('.ts')).length).toBeLessThanOrEqual(8);
  });

  it('a cycle is found, and reported with every file on it', () => {
    const looped = new Map([
      ['a', new Set(['b'])],
      ['b', new Set(['c', 'd'])],
      ['c', new Set(['b'])],
      ['d', new Set(['d'])],
    ]);
    expect(cyclesOf(looped)).toEqual(['b -> c -> b', 'd -> d']);
  });

  it('the levels of a graph are those of its longest way down', () => {
    const graph = new Map([
      ['main', new Set(['room', 'ground'])],
      ['room', new Set(['ground'])],
      ['ground', new Set<string>()],
    ]);
    expect(levelsOf(graph)).toBe(3);
  });
});

describe('what a file of src/ exports', () => {
  const words = (text: string): Set<string> => new Set(codeOf(text).match(/\w+/g));
  const readers = globSync('{src,test,bench,docs}/**/*.ts', { cwd: root, exclude: ['**/node_modules'] }).map(
    (path) => ({ path: path.replaceAll('\\', '/'), words: words(read(path)) }),
  );

  it('every value that a file exports is named in another file', () => {
    const unused = sources.flatMap(({ path, text }) =>
      [...text.matchAll(/^export (?:async )?(?:const|class|function\*?) (\w+)/gm)]
        .map(([, name = '']) => name)
        .filter((name) => !readers.some((reader) => reader.path !== `src/${path}` && reader.words.has(name)))
        .map((name) => `${path}: ${name}`),
    );
    expect(unused).toEqual([]);
  });
});

describe('the rules that keep the key in are kept', () => {
  const offenders = (pattern: RegExp, allowed: (path: string) => boolean = () => false): string[] =>
    sources.filter(({ path, code }) => !allowed(path) && pattern.test(code)).map(({ path }) => path);

  /** Programs as texts, for browsers and for people to copy: the gateway does not run them. */
  const textsForReaders = ['browser/console/main.ts', 'browser/api-page/main.ts', 'documents/api-page.ts'];

  it('only credential.ts and the key’s own room take its value out', () => {
    expect(
      offenders(/exposeKey/, (path) => path.startsWith('key/') || path === 'upstream/credential.ts'),
    ).toEqual([]);
  });

  it('only the transport and the stores open connections with undici', () => {
    expect(
      offenders(
        /^import (?!type\b)[^;]*from 'undici/m,
        (path) => path === 'upstream/transport.ts' || path.startsWith('key/vault'),
      ),
    ).toEqual([]);
  });

  it('only commands read the environment', () => {
    const elsewhere = (path: string): boolean =>
      path.startsWith('commands/') || textsForReaders.includes(path);
    expect(offenders(/process\.env\b/, elsewhere)).toEqual([]);
  });

  it.each<[string, RegExp]>([
    ['fetch, whose redirects carry the key', /(?<![.\w])fetch\(/],
    ['redirects that are followed', /redirect: 'follow'|interceptors\.redirect|maxRedirections/],
    ['TLS without verification', /rejectUnauthorized: false|NODE_TLS_REJECT_UNAUTHORIZED'\] = /],
    ['a lenient parser', /insecureHTTPParser: true/],
    ['headersDistinct, which one field name crashes', /headersDistinct/],
    ['undici’s own cache', /interceptors\.cache|cacheStores/],
    ['Hono’s cache or proxy helpers', /hono\/(?:cache|proxy)/],
    ['errors made to JSON by themselves', /JSON\.stringify\((?:err|error|cause)\)/],
    ['diagnostics channels', /diagnostics_channel/],
  ])('nothing uses %s', (name, pattern) => {
    // The client never has the key.
    const elsewhere = ['client/client.ts', ...textsForReaders];
    // It asks the gateway's own listener, whose certificate is for other names, and sends nothing secret.
    if (name === 'TLS without verification') elsewhere.push('commands/healthcheck.ts');
    expect(offenders(pattern, (path) => path.startsWith('demo/') || elsewhere.includes(path))).toEqual([]);
  });

  /** They decide, and nothing else: whatever they need to know comes in as an argument, times too. */
  const pureFiles = [
    'config/misspellings.ts',
    'admin/exposition.ts',
    'admin/health.ts',
    'admin/metrics.ts',
    'admin/workspace-metrics.ts',
    'cache/cache-control.ts',
    'cache/cache-key.ts',
    'cache/cache-rules.ts',
    'cache/shared-reads.ts',
    'callers/bucket.ts',
    'callers/callers-file.ts',
    'callers/callers-text.ts',
    'callers/credential.ts',
    'callers/jwt-rule.ts',
    'config/values.ts',
    'documents/openapi.ts',
    'documents/components.ts',
    'edge/cross-origin.ts',
    'edge/representation.ts',
    'edge/request-head.ts',
    'edge/request-ids.ts',
    'fleet/availability.ts',
    'gate/pacer.ts',
    'http/address.ts',
    'http/date.ts',
    'http/fields.ts',
    'http/header-table.ts',
    'http/links.ts',
    'http/percent-encoding.ts',
    'http/stated-wait.ts',
    'key/suspicion.ts',
    'key/node-flags.ts',
    'operations.ts',
    'upstream/circuit-rules.ts',
    'upstream/response.ts',
  ];

  it('the pure files have no clock, no timer, no promise and no socket', () => {
    const impure =
      /performance\.now|Date\.now|new Date\(\)|set(?:Timeout|Interval|Immediate)|\bawait\b|\basync\b|Promise[.<(]|\bthis\.|from 'node:(?:fs|http|https|net|tls|dns|child_process)/;
    // Of `node:net` they take what tells an address from a name.
    const codes = pureFiles.map((path) => sources.find((source) => source.path === path));
    expect(codes.filter((source) => source === undefined)).toEqual([]);
    const offending = codes.filter((source) =>
      impure.test(source?.code.replace(/from 'node:net'/, '') ?? ''),
    );
    expect(offending.map((source) => source?.path)).toEqual([]);
  });
});
