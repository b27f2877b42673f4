/**
 * The one check of a caller's text that goes up, or back to the caller: whether a credential stands in it. The URL, the
 * request's id, the trace fields and the forwarded fields all pass it.
 */
import type { Authenticator } from '../callers/authenticator.ts';
import { holdsCredential, leastCharacters } from '../callers/credential.ts';
import type { InboundRequest } from './inbound.ts';

export interface CredentialSearch {
  readonly authenticator: Pick<Authenticator, 'credentialsOf'>;
  /** Whether a text of a request to this path holds the upstream key. */
  readonly holdsKey: (text: string, path: string) => boolean;
}

/** Whether a text of this request holds a credential: one of our tokens, one that the request came with, the key. */
export type HoldsCredential = (text: string, request: Pick<InboundRequest, 'rawHeaders' | 'path'>) => boolean;

export function searchForCredentials({ authenticator, holdsKey }: CredentialSearch): HoldsCredential {
  return (text, { rawHeaders, path }) => {
    // Decoding only shortens a text: one like `page=2` has no room for a credential.
    if (text.length < leastCharacters) return holdsKey(text, path);
    return holdsCredential(text, authenticator.credentialsOf(rawHeaders), (part) => holdsKey(part, path));
  };
}
