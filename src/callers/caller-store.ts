/**
 * The version of the callers file that is in force: read at the start, followed while the gateway runs. A version is
 * taken as a whole, or refused as a whole, and the one before it stays.
 */
import type { KeyObject } from 'node:crypto';
import { describeUnreadable, FollowedFiles, type ReadFile, readTextSync } from '../files/read.ts';
import { type Authenticated, type Caller, type CallersEvent, makeCaller } from './caller.ts';
import {
  type CallerEntry,
  CallersFileError,
  type CallersFileRules,
  inFile,
  readCallersFile,
} from './callers-file.ts';
import type { CredentialFields } from './credential.ts';
import { type FlyRule, type FlyRules, flyKeyFile, readFlyKey } from './fly.ts';
import type { JwtRules } from './jwt.ts';

export interface CallerStoreOptions extends CallersFileRules {
  /** CALLERS_FILE; left out, only an anonymous caller exists. */
  readonly file?: string | undefined;
  /** The key of Fly's proxy, for tests; `/.fly/fly-src.pub` where left out. */
  readonly flyKeyFile?: string;
  onEvent(event: CallersEvent): void;
}

/** One version of the file, ready to authenticate with. */
export interface CallersVersion {
  readonly table: CallerTable;
  /** The key of Fly's proxy, where a caller is a Fly app. */
  readonly flyKey: KeyObject | undefined;
}

/** Reads the file once. @throws CallersFileError with every problem of it */
export function readCallersVersion(options: Omit<CallerStoreOptions, 'onEvent'>): CallersVersion {
  return readAtStart(options).version;
}

export class CallerStore {
  readonly #options: CallerStoreOptions;
  readonly #onVersion: () => void;
  readonly #followed: FollowedFiles | undefined;
  #version: CallersVersion;
  #loadedAt = Date.now();
  #problems: readonly string[] = [];
  /** Why the file cannot be read, while it cannot. */
  #unreadable: string | undefined;

  /**
   * @param onVersion another version is in force
   * @throws CallersFileError with every problem of the file
   */
  constructor(options: CallerStoreOptions, onVersion: () => void) {
    this.#options = options;
    this.#onVersion = onVersion;
    const { version, text } = readAtStart(options);
    this.#version = version;
    if (options.file === undefined) return;
    const { file } = options;
    this.#followed = new FollowedFiles({
      files: [file],
      texts: [text],
      onChange: ([found]) => found && this.#onChange(file, found),
    });
  }

  get version(): CallersVersion {
    return this.#version;
  }

  /** Wall clock, ms: when the version in force was read. */
  get loadedAt(): number {
    return this.#loadedAt;
  }

  /** What keeps the newest version of the file from being in force. */
  get problems(): readonly string[] {
    return this.#unreadable === undefined ? this.#problems : [this.#unreadable, ...this.#problems];
  }

  /** Reads the file again at once, changed or not: what is beside it, as Fly's key, may have changed. */
  reload(): void {
    void this.#followed?.readNow();
  }

  close(): void {
    this.#followed?.close();
  }

  #onChange(file: string, found: ReadFile): void {
    const { onEvent } = this.#options;
    if (found.status === 'rejected') {
      this.#unreadable = describeUnreadable('the callers file', file, found.reason);
      onEvent({ kind: 'file-unreadable', reason: this.#unreadable, cause: found.reason });
      return;
    }
    if (this.#unreadable !== undefined) onEvent({ kind: 'file-readable-again' });
    this.#unreadable = undefined;
    const reading = prepareVersion(found.value, this.#options);
    if ('problems' in reading) {
      this.#problems = inFile(file, reading.problems);
      onEvent({ kind: 'version-refused', problems: this.#problems });
      return;
    }
    const { tokens } = this.#version.table;
    for (const token of reading.version.table.tokens.values())
      token.usedAt = tokens.get(token.digest)?.usedAt ?? 0;
    this.#version = reading.version;
    this.#problems = [];
    this.#loadedAt = Date.now();
    this.#onVersion();
    onEvent({ kind: 'reloaded', callers: reading.version.table.callers.length });
  }
}

type Prepared = { readonly version: CallersVersion } | { readonly problems: readonly string[] };

function readAtStart(options: Omit<CallerStoreOptions, 'onEvent'>): {
  version: CallersVersion;
  text: string;
} {
  const { file, loopbackOnly, workspaces } = options;
  if (file === undefined) {
    if (loopbackOnly) {
      return {
        version: { table: anonymousTable(workspaces), flyKey: undefined },
        text: '',
      };
    }
    throw new CallersFileError(
      'without a callers file, the gateway may listen only on loopback or a Unix socket',
    );
  }
  let text: string;
  try {
    text = readTextSync(file);
  } catch (cause) {
    throw new CallersFileError(describeUnreadable('the callers file', file, cause));
  }
  const prepared = prepareVersion(text, options);
  if ('problems' in prepared) throw new CallersFileError(...inFile(file, prepared.problems));
  return { version: prepared.version, text };
}

function prepareVersion(
  text: string,
  options: CallersFileRules & { readonly flyKeyFile?: string },
): Prepared {
  const { entries, problems } = readCallersFile(text, options);
  if (problems.length > 0) return { problems };
  const table = makeCallerTable(entries);
  if (table.fly.length === 0) return { version: { table, flyKey: undefined } };
  const keyFile = options.flyKeyFile ?? flyKeyFile;
  try {
    return { version: { table, flyKey: readFlyKey(keyFile) } };
  } catch {
    const index = entries.findIndex(({ fly }) => fly !== undefined);
    return {
      problems: [`callers[${index}].fly: ${keyFile} can't be read as a key: this is not a Fly machine`],
    };
  }
}

export interface CallerToken {
  readonly digest: string;
  /** Wall clock, ms; `Infinity` where it does not expire. */
  readonly expiresAt: number;
  readonly authenticated: Authenticated;
  /** The caller has a newer token. */
  readonly isOlder: boolean;
  /** When it was last used since the start, wall clock, ms; 0 where it was not. */
  usedAt: number;
}

/** One version of the callers file, prepared for authentication: everything a request needs is made here, once. */
export interface CallerTable {
  readonly callers: readonly Caller[];
  readonly entries: readonly CallerEntry[];
  /** By digest. */
  readonly tokens: ReadonlyMap<string, CallerToken>;
  /** In file order: the first that matches is the caller. */
  readonly jwt: JwtRules;
  readonly fly: FlyRules;
  readonly anonymous: Authenticated | undefined;
  readonly fields: CredentialFields;
}

/**
 * The table of a gateway without callers file: one anonymous caller, who may do every operation.
 *
 * @param workspaces all that the gateway has
 */
function anonymousTable(workspaces: readonly string[]): CallerTable {
  const caller = makeCaller({ name: 'anonymous', operations: 'every', workspaces });
  return {
    callers: [caller],
    entries: [],
    tokens: new Map(),
    jwt: [],
    fly: [],
    anonymous: { caller, by: 'anonymous' },
    fields: { assertions: [], fly: false },
  };
}

function makeCallerTable(entries: readonly CallerEntry[]): CallerTable {
  const callers: Caller[] = [];
  const tokens = new Map<string, CallerToken>();
  const jwt: JwtRules[number][] = [];
  const fly: { rule: FlyRule; authenticated: Authenticated }[] = [];
  let anonymous: Authenticated | undefined;
  for (const entry of entries) {
    const caller = makeCaller({ ...entry, operations: new Set(entry.operations) });
    callers.push(caller);
    for (const token of tokensOf(entry, caller)) tokens.set(token.digest, token);
    if (entry.jwt !== undefined)
      jwt.push({ rule: entry.jwt, each: entry.each, authenticated: { caller, by: 'jwt' } });
    if (entry.fly !== undefined) fly.push({ rule: entry.fly, authenticated: { caller, by: 'fly' } });
    if (entry.anonymous) anonymous = { caller, by: 'anonymous' };
  }
  const headers = new Set(jwt.map(({ rule }) => rule.header));
  headers.delete('authorization');
  return {
    callers,
    entries,
    tokens,
    jwt,
    fly,
    anonymous,
    fields: { assertions: [...headers], fly: fly.length > 0 },
  };
}

function tokensOf(entry: CallerEntry, caller: Caller): CallerToken[] {
  return entry.tokens.map(({ digest, expiresAt }, index) => {
    const isOlder = index < entry.tokens.length - 1;
    const note = isOlder ? { note: `an older token (${digest.slice(0, 8)}) is still used` } : {};
    const ends = Number.isFinite(expiresAt) ? { expiresAt } : {};
    return {
      digest,
      expiresAt,
      isOlder,
      usedAt: 0,
      authenticated: { caller, by: 'token', ...ends, ...note },
    };
  });
}
