import { onTestFinished, vi } from 'vitest';
import type { Key } from '../../src/key/key.ts';
import type { KeyEvent } from '../../src/key/key-event.ts';
import type { KeyCheck } from '../../src/key/key-monitor.ts';
import { type Keyring, type KeyringOptions, openKeyring } from '../../src/key/keyring.ts';
import { type KeyStore, KeyStoreError } from '../../src/key/store.ts';
import type { KeyRead } from '../../src/key/suspicion.ts';

export const key1 = 'first-key-0123456789';
export const key2 = 'second-key-0123456789';
export const key3 = 'third-key-0123456789';

/** A store whose value a test sets; an `Error` is what it fails with, a promise what it waits for. */
export class FakeStore implements KeyStore {
  readonly describe = 'fake:store';
  readonly local: boolean;
  value: string | Error | Promise<string>;
  previous: string | undefined;
  loads = 0;
  #onChange: () => void = () => {};

  constructor(value: string | Error | Promise<string>, local = true) {
    this.value = value;
    this.local = local;
  }

  async load(): Promise<string> {
    this.loads++;
    const { value } = this;
    if (value instanceof Error) throw value;
    return value;
  }

  loadPrevious(): Promise<string | undefined> {
    return Promise.resolve(this.previous);
  }

  watch(onChange: () => void): () => void {
    this.#onChange = onChange;
    return () => {};
  }

  /** Puts a new value in place, and the watch sees it. */
  swap(value: string | Error): void {
    this.value = value;
    this.#onChange();
  }
}

/** The same without a watch: it has to be asked. */
export function unwatched(store: FakeStore): KeyStore {
  return { describe: store.describe, local: store.local, load: () => store.load() };
}

/** A read of an operation, for what is told of it. */
export const readOf = (operation: string): KeyRead => ({ operation, path: `/${operation}/`, query: '' });

export const down = new KeyStoreError('fake:store: refused the connection');

/** A keyring over a store, before an upstream that refuses every check until `checkWith` names another. Closed with the test. */
export async function keyringOf(
  store: KeyStore,
  options: Partial<KeyringOptions> = {},
): Promise<{ keyring: Keyring; events: KeyEvent[]; checkWith: (check: KeyCheck) => void }> {
  let check: KeyCheck = () => Promise.resolve(401);
  const events: KeyEvent[] = [];
  const keyring = await openKeyring({
    from: 'fake:',
    environment: {},
    check: (key, read) => check(key, read),
    refreshMs: 60_000,
    onEvent: (event) => events.push(event),
    open: () => store,
    ...options,
  });
  onTestFinished(() => keyring.close());
  const checkWith = (other: KeyCheck): void => {
    check = other;
  };
  return { keyring, events, checkWith };
}

/** The key in use. */
export function inUse({ current }: Keyring): Key {
  if (current === undefined) throw new Error('no key');
  return current;
}

/** For a wait of so many ms at the most. */
export const within = (ms: number) => ({
  signal: new AbortController().signal,
  deadlineMs: performance.now() + ms,
});

/** Refuses the key in use, and gives the one that is to be tried instead once that is known. */
export async function otherAfterRefusal(keyring: Keyring): Promise<Key> {
  const used = inUse(keyring);
  keyring.refused(used, readOf('list-accounts'));
  const replaced = keyring.replace(used, within(25_000));
  await vi.advanceTimersByTimeAsync(2_000);
  const other = await replaced;
  if (other === undefined) throw new Error('nothing to fall back to');
  return other;
}
