/** Stores whose code is loaded when they are named: a start that names another does not pay for them. */
import type { KeyStore } from './store.ts';

export type OpenedStore = Pick<KeyStore, 'load' | 'loadPrevious'>;

export function whenUsed(describe: string, open: () => Promise<OpenedStore>): KeyStore {
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
