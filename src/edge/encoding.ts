/**
 * Which coding of an answer a caller gets, by its Accept-Encoding (RFC 9110 section 12.5.3).
 * Pure: no `this`, no I/O, no clock.
 */

export type ContentCoding = 'br' | 'gzip' | 'identity';

const weighted = /^([!#$%&'*+.^_`|~0-9a-z-]+)(?:[\t ]*;[\t ]*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?))?$/;

/**
 * Chooses among the bodies that exist. Of equal weights br is preferred, then gzip.
 *
 * Identity is acceptable unless it is refused, and where nothing else is left it is given all the same: a
 * readable answer serves a caller better than 406 (section 12.5.3 leaves the choice).
 *
 * @param acceptEncoding the field's value, repeated lines joined by a comma; `undefined` where it is absent
 * @param available which compressed bodies exist
 */
export function chooseCoding(
  acceptEncoding: string | undefined,
  available: { readonly br: boolean; readonly gzip: boolean },
): ContentCoding {
  // RFC 9110 allows any coding where the field is absent, but such a caller may not be able to decode one.
  if (acceptEncoding === undefined || (!available.br && !available.gzip)) return 'identity';
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.toLowerCase().split(',')) {
    const found = weighted.exec(part.trim());
    if (found === null) continue;
    const name = found[1] === 'x-gzip' ? 'gzip' : (found[1] ?? '');
    // The same name twice: the lower weight satisfies both.
    weights.set(name, Math.min(weights.get(name) ?? 1, found[2] === undefined ? 1 : Number(found[2])));
  }
  const others = weights.get('*');
  const br = available.br ? (weights.get('br') ?? others ?? 0) : 0;
  const gzip = available.gzip ? (weights.get('gzip') ?? others ?? 0) : 0;
  const identity = weights.get('identity');
  const best = br >= gzip ? 'br' : 'gzip';
  const weight = Math.max(br, gzip);
  if (weight === 0) return 'identity';
  // Named and preferred, identity wins; unnamed, it is merely acceptable.
  return identity !== undefined && identity > weight ? 'identity' : best;
}
