/** From a setting as `file:/run/secrets/key` to the store it names. */
import { existsSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { readSettings } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import { type OutboundProxy, proxyFor } from '../exchange/proxy.ts';
import { importModule, type LoadModule } from '../files/optional-package.ts';
import { explainDenied, readSettled, watchForChanges } from '../files/read.ts';
import type { OnSaid } from './exec-store.ts';
import {
  describeFailure,
  type KeyStore,
  KeyStoreError,
  maxKeyBytes,
  minKeyCharacters,
  type OpenedStore,
} from './store.ts';
import { parseVaultSettings } from './vault-settings.ts';

/**
 * Opens a store without asking it for anything yet.
 *
 * @param from the setting's value
 * @param environment where `env:` looks, and what stores take their own settings from
 * @param setting the setting's name, for messages
 * @param loadModule how a cloud's library is found; for tests
 * @param onSaid takes what the command of an `exec:` store says; nowhere where left out
 * @throws KeyStoreError naming what is wrong with the setting; never with a value in it
 */
export function openStore(
  from: string,
  environment: Environment,
  setting: string,
  loadModule: LoadModule = importModule,
  onSaid?: OnSaid,
): KeyStore {
  const colon = from.indexOf(':');
  const scheme = colon < 0 ? '' : from.slice(0, colon);
  const rest = from.slice(colon + 1);
  switch (scheme) {
    case 'env':
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(rest)) {
        throw new KeyStoreError(`${setting}: "env:" is followed by the name of an environment variable`);
      }
      return readEnvironment(rest, environment);
    case 'file':
      if (!isAbsolute(rest) || rest.includes('\0')) {
        throw new KeyStoreError(
          `${setting}: "file:" is followed by an absolute path, as file:/run/secrets/key`,
        );
      }
      return readKeyFile(rest);
    case 'exec':
      return openCommand(rest, environment, setting, onSaid);
    case 'vault': {
      const settings = parseVaultSettings(rest, environment);
      if ('reason' in settings) throw new KeyStoreError(`${setting}: ${settings.reason}`);
      const describe = `vault:${rest}`;
      return whenUsed(describe, async () => {
        const { readVault } = await import('./vault-store.ts');
        return readVault(settings, describe, proxyIn(environment));
      });
    }
    case 'aws-sm':
      return openAws(rest, environment, setting, loadModule);
    case 'gcp-sm':
      return openGcp(rest, setting, loadModule);
    default:
      // The value is not repeated: it may be the key itself.
      throw new KeyStoreError(
        `${setting}: names no store; it begins with env:, file:, exec:, vault:, aws-sm: or gcp-sm:`,
      );
  }
}

function openCommand(
  text: string,
  environment: Environment,
  setting: string,
  onSaid: OnSaid | undefined,
): KeyStore {
  const command = splitWords(text);
  if ('reason' in command) throw new KeyStoreError(`${setting}: the command ${command.reason}`);
  // The arguments stay unsaid: one may be a token.
  const [program = ''] = command.words;
  const looksLikeKey = command.words.length === 1 && mayBeKey(program) && !isProgram(program, environment);
  const describe = `exec:${looksLikeKey ? '(not a program)' : program}`;
  return whenUsed(describe, async () =>
    (await import('./exec-store.ts')).runCommand(command.words, environment, describe, onSaid),
  );
}

function openAws(text: string, environment: Environment, setting: string, loadModule: LoadModule): KeyStore {
  const [, secret, field] = /^([\w/+=.@:-]+)(?:#(.+))?$/.exec(text) ?? [];
  if (secret === undefined) {
    throw new KeyStoreError(
      `${setting}: "aws-sm:" is followed by a secret's name or ARN, and #field if it is JSON`,
    );
  }
  const describe = `aws-sm:${text}`;
  return whenUsed(describe, async () =>
    (await import('./cloud-stores.ts')).readAws(secret, field, describe, loadModule, proxyIn(environment)),
  );
}

function openGcp(text: string, setting: string, loadModule: LoadModule): KeyStore {
  const [, secret, version = 'latest', field] =
    /^(projects\/[\w:.-]+(?:\/locations\/[\w-]+)?\/secrets\/[\w-]+)(?:\/versions\/(\w+))?(?:#(.+))?$/.exec(
      text,
    ) ?? [];
  if (secret === undefined) {
    throw new KeyStoreError(
      `${setting}: "gcp-sm:" is followed by projects/<project>/secrets/<name>, and /versions/<number> if not the latest`,
    );
  }
  const describe = `gcp-sm:${text}`;
  return whenUsed(describe, async () =>
    (await import('./cloud-stores.ts')).readGcp(secret, version, field, describe, loadModule),
  );
}

/** The way out of the network, as the settings name it. Google's library finds its own by the same variables. */
function proxyIn(environment: Environment): OutboundProxy | undefined {
  return proxyFor(readSettings(environment, ['HTTPS_PROXY', 'NO_PROXY', 'PROXY_AUTHORIZATION_FROM']));
}

/** A text that may be the key itself, put where its store is to be named: long, of one piece, with digits in it. */
function mayBeKey(word: string): boolean {
  return !isAbsolute(word) && word.length >= minKeyCharacters && /\d/.test(word) && /[a-z]/i.test(word);
}

function isProgram(word: string, environment: Environment): boolean {
  const folders = word.includes('/') ? ['.'] : (environment['PATH'] ?? '').split(delimiter);
  return folders.some((folder) => existsSync(join(folder, word)));
}

/** `env:NAME`: the key in the environment. It cannot change while the process runs. */
function readEnvironment(name: string, environment: Environment): KeyStore {
  // The setting may hold the key itself instead of the name of its variable.
  const isVariable = environment[name] !== undefined || /^[A-Z_][A-Z0-9_]*$/.test(name);
  const describe = `env:${isVariable ? name : '(not a variable)'}`;
  return {
    describe,
    local: true,
    load: () => {
      const text = environment[name];
      return text === undefined
        ? Promise.reject(new KeyStoreError(`${describe}: the environment variable is not set`))
        : Promise.resolve(text);
    },
    watch: () => () => {},
  };
}

/** More than a good file can hold, so that one that is too large is seen to be so and never read whole. */
const readBytes = 2 * maxKeyBytes;

/**
 * `file:/path`: the key in a file that something else writes: a Docker or Kubernetes secret, a systemd
 * credential, an agent's rendered template, an editor.
 */
function readKeyFile(path: string): KeyStore {
  const describe = `file:${path}`;
  return {
    describe,
    local: true,
    load: async () => {
      try {
        const text = await readSettled(path, readBytes);
        if (Buffer.byteLength(text) >= readBytes) throw new KeyStoreError('is too large to be a key');
        return text;
      } catch (error) {
        throw new KeyStoreError(
          `${describe}: the file ${describeFailure(error)}${explainDenied(path, error)}`,
        );
      }
    },
    watch: (onChange) => {
      const watch = watchForChanges(path, onChange);
      return () => watch.close();
    },
  };
}

/** Stores whose code is loaded when they are named: a start that names another does not pay for them. */
function whenUsed(describe: string, open: () => Promise<OpenedStore>): KeyStore {
  let opened: Promise<OpenedStore> | undefined;
  const use = () => {
    opened ??= open().catch((error: unknown) => {
      // What is missing now may have been installed at the next try.
      opened = undefined;
      throw error;
    });
    return opened;
  };
  return {
    describe,
    local: false,
    prepare: async () => {
      await use();
    },
    load: async (signal) => (await use()).load(signal),
    loadPrevious: async (signal) => (await use()).loadPrevious?.(signal),
  };
}

type CommandLine = { readonly words: readonly string[] } | { readonly reason: string };

/**
 * Splits a command line at whitespace, without a shell. `'…'` keeps everything as it is; `"…"` too, but for `\"` and `\\`;
 * outside of quotes a backslash keeps the next character. What only a shell could expand is refused: it would reach the
 * program as text and surprise its author.
 *
 * @returns the words, or why not, in words that hold nothing of the text
 */
export function splitWords(text: string): CommandLine {
  const words: string[] = [];
  let word: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const character = text.charAt(at);
    if (/\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (character === "'") {
      const end = text.indexOf("'", at + 1);
      if (end < 0) return { reason: "has a ' that is never closed" };
      word = (word ?? '') + text.slice(at + 1, end);
      at = end;
    } else if (character === '"') {
      word ??= '';
      for (at++; text.charAt(at) !== '"'; at++) {
        if (at >= text.length) return { reason: 'has a " that is never closed' };
        if (text.charAt(at) === '\\' && /["\\]/.test(text.charAt(at + 1))) at++;
        word += text.charAt(at);
      }
    } else if (character === '\\') {
      at++;
      if (at >= text.length) return { reason: 'ends with a backslash' };
      word = (word ?? '') + text.charAt(at);
    } else if ('|<>;&`$'.includes(character)) {
      return {
        reason: `has a ${character} outside of single or double quotes, and no shell runs it: quote it, or name a script`,
      };
    } else {
      word = (word ?? '') + character;
    }
  }
  if (word !== undefined) words.push(word);
  if (words.length === 0 || words[0] === '') return { reason: 'names no program' };
  if (text.includes('\0')) return { reason: 'contains NUL' };
  return { words };
}
