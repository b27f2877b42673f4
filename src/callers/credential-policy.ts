/**
 * Finds the one credential of a request, in the raw header lines. Node hides a second `Authorization` line and
 * joins repeated `X-API-Key` lines, so its merged headers can't tell an attack from a caller.
 * Pure: no `this`, no I/O, no clock.
 *
 * A request has one credential. The same token in `Authorization` and in `X-API-Key` is one; two different ones,
 * or one field sent twice (even with the same value), are refused, or two readers could believe two things.
 * The exception is `Fly-Src`: Fly's proxy puts it on every request, so it counts only where nothing else is sent.
 */

export type Presented =
  | { readonly kind: 'none' }
  /** A credential was sent that can't be one; the reason is for the log. */
  | { readonly kind: 'malformed'; readonly reason: string }
  /** Bearer or X-API-Key: a static token, or a JWT. */
  | { readonly kind: 'token'; readonly value: string; readonly isBearer: boolean }
  /** A JWT in a field that the callers file names. */
  | { readonly kind: 'assertion'; readonly header: string; readonly value: string }
  | { readonly kind: 'fly'; readonly source: string; readonly signature: string };

export interface CredentialFields {
  /** Lower-case names of fields that carry a JWT for some caller, `authorization` not among them. */
  readonly assertions: readonly string[];
  /** Some caller is a Fly app. Otherwise its fields are nothing to us. */
  readonly fly: boolean;
}

const none: Presented = { kind: 'none' };
// RFC 6750 section 2.1 (b64token) with RFC 9110 section 11.4: the scheme in any case, then exactly one token68.
const oneToken = '[A-Za-z0-9._~+/-]+=*';
const bearer = new RegExp(`^bearer +(${oneToken})$`, 'i');
const token68 = new RegExp(`^${oneToken}$`);

function malformed(reason: string): Presented {
  return { kind: 'malformed', reason };
}

/** @param rawHeaders names and values in turn, as received */
export function presentedCredential(rawHeaders: readonly string[], fields: CredentialFields): Presented {
  let authorization: string | undefined;
  let apiKey: string | undefined;
  let source: string | undefined;
  let signature: string | undefined;
  let assertion: { header: string; value: string } | undefined;

  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const written = rawHeaders[index] ?? '';
    const value = rawHeaders[index + 1] ?? '';
    // Most names have another length than ours: the hot path lower-cases next to nothing.
    switch (written.length) {
      case 13:
        if (written.toLowerCase() === 'authorization') {
          if (authorization !== undefined) return malformed('Authorization is sent twice');
          authorization = value;
        }
        break;
      case 9:
        if (written.toLowerCase() === 'x-api-key') {
          if (apiKey !== undefined) return malformed('X-API-Key is sent twice');
          apiKey = value;
        }
        break;
      case 7:
        if (fields.fly && written.toLowerCase() === 'fly-src') {
          if (source !== undefined) return malformed('Fly-Src is sent twice');
          source = value;
        }
        break;
      case 17:
        if (fields.fly && written.toLowerCase() === 'fly-src-signature') {
          if (signature !== undefined) return malformed('Fly-Src-Signature is sent twice');
          signature = value;
        }
        break;
    }
    for (const header of fields.assertions) {
      if (written.length !== header.length || written.toLowerCase() !== header) continue;
      if (assertion !== undefined) return malformed(`${header} comes beside another JWT`);
      assertion = { header, value };
    }
  }

  if (authorization === undefined && apiKey === undefined && assertion === undefined) {
    if (source === undefined && signature === undefined) return none;
    if (source === undefined || signature === undefined)
      return malformed('Fly-Src without signature, or reverse');
    return { kind: 'fly', source, signature };
  }

  let token: string | undefined;
  if (authorization !== undefined) {
    token = bearer.exec(authorization)?.[1];
    if (token === undefined) return malformed('Authorization is not "Bearer" and one token');
  }
  if (apiKey !== undefined) {
    if (!token68.test(apiKey)) return malformed('X-API-Key is not one token');
    if (token !== undefined && token !== apiKey) return malformed('Authorization and X-API-Key differ');
  }
  const value = token ?? apiKey;
  if (assertion !== undefined) {
    if (!token68.test(assertion.value)) return malformed(`${assertion.header} is not one JWT`);
    if (value !== undefined && value !== assertion.value)
      return malformed(`${assertion.header} and a token differ`);
    return { kind: 'assertion', ...assertion };
  }
  return { kind: 'token', value: value ?? '', isBearer: token !== undefined };
}
