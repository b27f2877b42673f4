/** What the log says about callers, their file and the keys of their issuers. */
export type CallersEvent =
  | { readonly kind: 'reloaded'; readonly callers: number }
  /** A new version of the file has problems; the version before it stays in force. */
  | { readonly kind: 'version-refused'; readonly problems: readonly string[] }
  /** The file can't be read; the version before stays in force. */
  | { readonly kind: 'file-unreadable'; readonly reason: string; readonly cause: unknown }
  | { readonly kind: 'file-readable-again' }
  /** A caller still uses a token that has a newer one beside it. At most once an hour for each token. */
  | { readonly kind: 'older-token-used'; readonly caller: string; readonly token: string }
  /** The keys of an issuer can't be fetched: the last ones, where there were any, serve for a day. Reported once. */
  | {
      readonly kind: 'keys-unavailable';
      readonly address: string;
      readonly hasKeys: boolean;
      readonly cause: unknown;
    }
  | { readonly kind: 'keys-available-again'; readonly address: string };
