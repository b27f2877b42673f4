/**
 * `npm run build [-- DIR]` makes `dist/main.js` and the parts it loads when they are needed, libraries included. A
 * start then reads a dozen files instead of two hundred, which saves 70 ms, and needs no `node_modules`. Beside it
 * `dist/client/` is what programs in TypeScript import.
 */
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import { build, type Plugin } from 'rolldown';
import { transformSync } from 'rolldown/utils';
import * as pageTexts from './src/browser/pages.ts';
import { optionalPackages } from './src/files/optional-package.ts';

const ownPackage = JSON.parse(readFileSync('package.json', 'utf8')) as {
  readonly name: string;
  readonly version: string;
  readonly license: string;
};
const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  readonly packages: Readonly<Record<string, { readonly integrity?: string }>>;
};

/** Of packages under the MIT licence that come without its text: what their repositories say. */
const copyrights: Readonly<Record<string, string>> = {
  '@redis/client': 'Copyright (c) 2022-2025, Redis, inc.',
};

/** What stands in a library as compiled code, without a word of whose it is. */
const compiled = [
  {
    file: /\/undici\/lib\/llhttp\/llhttp\b.*-wasm\.js$/,
    name: 'llhttp',
    copyright: 'Copyright Fedor Indutny, 2018.',
  },
];

/** In the program as a text: no bundler sees it there. */
const uplotFolder = 'node_modules/uplot';
// Rolldown names a file by its real path.
const modules = realpathSync('node_modules');

const folder = process.argv[2] ?? 'dist';

await build({
  input: 'src/main.ts',
  platform: 'node',
  // Optional libraries: the clouds' and OpenTelemetry's are installed where they are used.
  external: Object.keys(optionalPackages),
  // Its CommonJS build asks for its parts in a way that no bundler follows.
  resolve: { alias: { 'jsonc-parser': 'jsonc-parser/lib/esm/main.js' } },
  plugins: [pagesAsTexts(), libraries(), oneByteSources()],
  logLevel: 'warn',
  output: {
    dir: folder,
    cleanDir: true,
    format: 'esm',
    // One folder down, as in `src/`: from there `.env.example` is found.
    chunkFileNames: 'parts/[name].js',
    comments: false,
  },
});

await build({
  input: 'src/client/client.ts',
  platform: 'neutral',
  plugins: [declarations()],
  logLevel: 'warn',
  output: { dir: join(folder, 'client'), format: 'esm', comments: false, minify: true },
});

/** A declaration for each file, by that file alone: what it exports says its type (isolatedDeclarations). */
function declarations(): Plugin {
  return {
    name: 'declarations',
    transform(code, id) {
      if (!id.endsWith('.ts')) return;
      const { declaration = '', errors } = transformSync(id, code, { typescript: { declaration: {} } });
      for (const { message } of errors) this.error(`${id}: ${message}`);
      this.emitFile({
        type: 'asset',
        fileName: basename(id).replace('.ts', '.d.ts'),
        source: declaration.replaceAll('.ts"', '.js"'),
      });
    },
  };
}

/** What pages carry goes into the program as texts. */
function pagesAsTexts(): Plugin {
  return {
    name: 'pages-as-texts',
    transform(_code, id) {
      if (!id.endsWith('/src/browser/pages.ts')) return null;
      const texts = Object.entries(pageTexts).map(
        ([name, text]) => `export const ${name} = ${JSON.stringify(text)};`,
      );
      return { code: texts.join('\n'), moduleType: 'js' };
    },
  };
}

/**
 * Characters beyond ASCII as escapes. V8 keeps a source in memory for as long as its functions live, and one that has
 * a single wide character in it at two bytes for each of its characters.
 */
function oneByteSources(): Plugin {
  return {
    name: 'one-byte-sources',
    generateBundle(_options, bundle) {
      for (const chunk of Object.values(bundle)) {
        if (chunk.type === 'chunk') chunk.code = chunk.code.replace(/[^\0-\x7f]/g, escaped);
      }
    },
  };
}

function escaped(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/**
 * The libraries that are in the program, whose package names none: their licences, as each of them asks for
 * (`LICENSES.txt`), and what scanners read (`sbom.cdx.json`, CycloneDX). `npm sbom` would list what npm installs, which
 * is not the same.
 */
function libraries(): Plugin {
  return {
    name: 'libraries',
    generateBundle(_options, bundle) {
      const folders = new Map<string, string[]>([[uplotFolder, []]]);
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === 'chunk' ? chunk.moduleIds : []) {
          const inside = id.startsWith(modules) ? id.slice(modules.length) : '';
          const folder = /^\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(inside)?.[0];
          if (folder === undefined) continue;
          const files = folders.get(`node_modules${folder}`) ?? [];
          folders.set(`node_modules${folder}`, [...files, id]);
        }
      }
      const found = [...folders]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([one, files]) => libraryIn(one, files));
      const licences = found.map(
        ({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`,
      );
      if (licences.some((text) => text.includes('Apache License, Version 2.0')))
        licences.push(apacheLicence());
      this.emitFile({ type: 'asset', fileName: 'LICENSES.txt', source: licences.join('\n') });
      this.emitFile({ type: 'asset', fileName: 'sbom.cdx.json', source: billOfMaterials(found) });
    },
  };
}

interface Library {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** The licence's text, with those of what it has taken from others. */
  readonly text: string;
  /** Base64 of the SHA-512 of the package as it was fetched. */
  readonly sha512: string;
}

/** @throws Error for a library without a licence or its text: it may not be passed on */
function libraryIn(folder: string, files: readonly string[]): Library {
  const { name, version, license } = JSON.parse(
    readFileSync(join(folder, 'package.json'), 'utf8'),
  ) as Library;
  const file = readdirSync(folder).find((one) => /^(?:licen[cs]e|copying)/i.test(one));
  if (license === undefined) throw new Error(`${name} has no licence`);
  const copyright = license === 'MIT' ? copyrights[name] : undefined;
  const own = file === undefined ? '' : readFileSync(join(folder, file), 'utf8').trim();
  const text = own === '' && copyright !== undefined ? mitLicence(copyright) : own;
  if (text === '') throw new Error(`${name} has no text of its licence`);
  const sha512 = /sha512-(\S+)/.exec(lock.packages[folder]?.integrity ?? '')?.[1];
  if (sha512 === undefined) throw new Error(`package-lock.json has no hash of ${folder}`);
  return { name, version, license, text: [text, ...takenFromOthers(name, files)].join('\n\n'), sha512 };
}

/** The notices in a library's files, which the bundle has lost with its comments, and what `compiled` lists. */
function takenFromOthers(name: string, files: readonly string[]): string[] {
  const notices = files.flatMap((file) => {
    const comments = readFileSync(file, 'utf8').match(/\/\*[\s\S]*?\*\/|(?:^[ \t]*\/\/.*\n)+/gm) ?? [];
    return comments.filter((comment) => /copyright (?:\(c\) )?\d{4}/i.test(comment));
  });
  const parts = compiled.filter((part) => files.some((file) => part.file.test(file)));
  return [
    ...[...new Set(notices)].map((notice) => `Parts of ${name}:\n\n${notice.trim()}`),
    ...parts.map((part) => `${part.name} (MIT), as a part of ${name}\n\n${mitLicence(part.copyright)}`),
  ];
}

/** The words of the MIT licence are those of our own. */
function mitLicence(copyright: string): string {
  return readFileSync('LICENSE', 'utf8')
    .replace(/^Copyright .*$/m, copyright)
    .trim();
}

/** Notices that name it give an address alone; a library of the tests comes with its text. */
function apacheLicence(): string {
  const text = readFileSync('node_modules/playwright-core/LICENSE', 'utf8');
  const terms = /Apache License[\s\S]*END OF TERMS AND CONDITIONS/.exec(text)?.[0];
  if (terms === undefined) throw new Error('the text of the Apache License is not found');
  return `${terms}\n`;
}

/** CycloneDX 1.5, with no time and no number of its own in it: the same source makes the same bytes. */
function billOfMaterials(found: readonly Library[]): string {
  const component = (type: string, { name, version, license }: Omit<Library, 'text' | 'sha512'>): object => ({
    type,
    'bom-ref': `${name}@${version}`,
    name,
    version,
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    licenses: [{ license: { id: license } }],
  });
  const bill = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: { component: component('application', ownPackage) },
    components: found.map((library) => ({
      ...component('library', library),
      hashes: [{ alg: 'SHA-512', content: Buffer.from(library.sha512, 'base64').toString('hex') }],
    })),
  };
  return `${JSON.stringify(bill, null, 2)}\n`;
}
