/** Authenticates Fly apps by the `Fly-Src` field that Fly's proxy signs. Answers without a promise. */
import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { readTextSync } from '../files/read.ts';
import { isFlyProxy } from '../http/address.ts';
import type { Authenticated } from './caller.ts';
import type { FlyRule } from './callers-file.ts';
import { isFlySourceFresh, parseFlySource } from './fly-policy.ts';

export type FlyRules = readonly { readonly rule: FlyRule; readonly authenticated: Authenticated }[];

/** Where Fly puts the key of its proxy on every machine. */
export const flyKeyFile = '/.fly/fly-src.pub';
/** What stands before the 32 bytes of an Ed25519 key in DER (RFC 8410 section 4). */
const ed25519Prefix = '302a300506032b6570032100';

/** @throws Error where the file is missing or holds no key */
export function readFlyKey(file: string): KeyObject {
  const hex = readTextSync(file).trim();
  if (!/^[0-9a-f]{64}$/i.test(hex)) throw new Error('not 64 hexadecimal digits');
  return createPublicKey({ key: Buffer.from(ed25519Prefix + hex, 'hex'), format: 'der', type: 'spki' });
}

/** Which caller sent it, or why none, for the log. The time in it is that of Fly's proxy. */
export function authenticateFly(
  key: KeyObject,
  rules: FlyRules,
  sent: { readonly source: string; readonly signature: string; readonly remoteAddress: string | undefined },
): Authenticated | { readonly reason: string } {
  // Machines of the same organisation reach us past the proxy and could replay a field they were sent.
  if (!isFlyProxy(sent.remoteAddress)) return { reason: 'Fly-Src from a peer that is not the proxy of Fly' };
  if (!/^[A-Za-z0-9+/]{86}==$/.test(sent.signature)) return { reason: 'Fly-Src with an invalid signature' };
  // The exact bytes: Node gives header values as latin1.
  const bytes = Buffer.from(sent.source, 'latin1');
  if (!verify(null, bytes, key, Buffer.from(sent.signature, 'base64'))) {
    return { reason: 'Fly-Src with a wrong signature' };
  }
  const source = parseFlySource(sent.source);
  if (source === undefined) return { reason: 'Fly-Src with other fields than the four known' };
  if (!isFlySourceFresh(source, Date.now())) return { reason: 'Fly-Src that is too old, or from the future' };
  const found = rules.find(({ rule }) => rule.org === source.org && rule.app === source.app);
  return found?.authenticated ?? { reason: 'a Fly app that is no caller' };
}
