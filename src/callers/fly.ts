/** Authenticates Fly apps by the `Fly-Src` field that Fly's proxy signs. Answers without a promise. */
import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { readTextSync } from '../files/read.ts';
import { isFlyProxy } from '../http/address.ts';
import type { Authenticated } from './caller.ts';

export interface FlyRule {
  readonly org: string;
  readonly app: string;
}

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

/** Which machine sends a request, as Fly's proxy has signed it. */
interface FlySource {
  readonly instance: string;
  readonly app: string;
  readonly org: string;
  /** Unix time, seconds. */
  readonly ts: number;
}

const known = ['instance', 'app', 'org', 'ts'];
/** A statement does not say for which receiver it was made, so a receiver could send it on: only for this long. */
const maxAgeSeconds = 30;

/**
 * Reads Fly's statement of which machine sends a request: `instance=…;app=…;org=…;ts=…`.
 *
 * @returns `undefined` for anything but exactly these four fields, each once and none empty
 */
export function parseFlySource(text: string): FlySource | undefined {
  const fields = new Map<string, string>();
  for (const part of text.split(';')) {
    const at = part.indexOf('=');
    const name = part.slice(0, Math.max(at, 0));
    const value = part.slice(at + 1);
    if (!known.includes(name) || fields.has(name) || value === '') return undefined;
    fields.set(name, value);
  }
  const [instance, app, org, ts] = known.map((name) => fields.get(name));
  if (instance === undefined || app === undefined || org === undefined || ts === undefined) return undefined;
  return /^\d{1,12}$/.test(ts) ? { instance, app, org, ts: Number(ts) } : undefined;
}

/** Not older than 30 s, and not from further in the future than that either. */
export function isFlySourceFresh({ ts }: FlySource, nowMs: number): boolean {
  return Math.abs(nowMs / 1000 - ts) <= maxAgeSeconds;
}
