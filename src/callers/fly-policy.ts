/**
 * Reads Fly's statement of which machine sends a request: `instance=…;app=…;org=…;ts=…`. The signature is over the
 * exact bytes and is checked elsewhere. Pure: no `this`, no I/O, no clock.
 */

export interface FlySource {
  readonly instance: string;
  readonly app: string;
  readonly org: string;
  /** Unix time, seconds. */
  readonly ts: number;
}

const known = ['instance', 'app', 'org', 'ts'];
/** A statement does not say for which receiver it was made, so a receiver could send it on: only for this long. */
const maxAgeSeconds = 30;

/** Exactly the four known fields, each once and none empty; `undefined` for anything else. */
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
