/**
 * The one check of a caller's text that goes up, or back to the caller: whether a credential stands in it. The URL, the
 * request's id, the trace fields and the forwarded fields all pass it.
 */
import type { Authenticator } from '../callers/authenticator.ts';
import { holdsCredential } from '../callers/credential-search-policy.ts';
import type { InboundRequest } from './inbound.ts';

export interface CredentialSearch {
  readonly authenticator: Pick<Authenticator, 'credentialOf'>;
  /** Whether a text holds the upstream key. */
  readonly holdsKey: (text: string) => boolean;
}

/** Whether a text of this request holds a credential: one of our tokens, one that the request came with, the key. */
export type HoldsCredential = (
  text: string,
  request: Pick<InboundRequest, 'headers' | 'rawHeaders'>,
) => boolean;

export function searchForCredentials({ authenticator, holdsKey }: CredentialSearch): HoldsCredential {
  return (text, { headers, rawHeaders }) => {
    const presented = [authenticator.credentialOf(rawHeaders), headers.authorization, headers['x-api-key']];
    // Also where the fields contradict each other, or name another scheme.
    return holdsCredential(text, presented.flatMap(lastWord), holdsKey);
  };
}

/** A credential without its scheme. */
function lastWord(value: string | readonly string[] | undefined): string[] {
  return value === undefined ? [] : [String(value).split(' ').at(-1) ?? ''];
}
