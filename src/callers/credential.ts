/**
 * Finds credentials: the one of a request, and those that stand in a text where none may be (a URL, an id).
 * Pure: no `this`, no I/O, no clock.
 *
 * The one of a request is found in the raw header lines. Node hides a second `Authorization` line and
 * joins repeated `X-API-Key` lines, so its merged headers can't distinguish an attack from a caller.
 *
 * A request has one credential. The same token in `Authorization` and in `X-API-Key` is one; two different ones,
 * or one field sent twice (even with the same value), are refused, or two readers could believe two things.
 * The exception is `Fly-Src`: Fly's proxy puts it on every request, so it counts only where nothing else is sent.
 */
import { decodings } from '../http/percent-encoding.ts';
import { holdsToken, tokenPrefix } from './token.ts';

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

/** The values of the fields that may carry a credential, as received. */
interface CredentialLines {
  authorization: string | undefined;
  apiKey: string | undefined;
  flySource: string | undefined;
  flySignature: string | undefined;
  assertion: { readonly header: string; readonly value: string } | undefined;
}

/** @returns what is wrong with a line beside the others, for the log */
function addLine(
  lines: CredentialLines,
  written: string,
  value: string,
  fields: CredentialFields,
): string | undefined {
  // Most names have another length than ours: the hot path lower-cases next to nothing.
  switch (written.length) {
    case 13:
      if (written.toLowerCase() !== 'authorization') break;
      if (lines.authorization !== undefined) return 'Authorization is sent twice';
      lines.authorization = value;
      break;
    case 9:
      if (written.toLowerCase() !== 'x-api-key') break;
      if (lines.apiKey !== undefined) return 'X-API-Key is sent twice';
      lines.apiKey = value;
      break;
    case 7:
      if (!fields.fly || written.toLowerCase() !== 'fly-src') break;
      if (lines.flySource !== undefined) return 'Fly-Src is sent twice';
      lines.flySource = value;
      break;
    case 17:
      if (!fields.fly || written.toLowerCase() !== 'fly-src-signature') break;
      if (lines.flySignature !== undefined) return 'Fly-Src-Signature is sent twice';
      lines.flySignature = value;
      break;
  }
  for (const header of fields.assertions) {
    if (written.length !== header.length || written.toLowerCase() !== header) continue;
    if (lines.assertion !== undefined) return `${header} comes beside another JWT`;
    lines.assertion = { header, value };
  }
  return undefined;
}

/** @param rawHeaders names and values in turn, as received */
export function presentedCredential(rawHeaders: readonly string[], fields: CredentialFields): Presented {
  const lines: CredentialLines = {
    authorization: undefined,
    apiKey: undefined,
    flySource: undefined,
    flySignature: undefined,
    assertion: undefined,
  };
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const wrong = addLine(lines, rawHeaders[index] ?? '', rawHeaders[index + 1] ?? '', fields);
    if (wrong !== undefined) return malformed(wrong);
  }
  const { authorization, apiKey, assertion } = lines;
  if (authorization === undefined && apiKey === undefined && assertion === undefined) {
    return flyCredential(lines.flySource, lines.flySignature);
  }
  const token = authorization === undefined ? undefined : bearer.exec(authorization)?.[1];
  if (authorization !== undefined && token === undefined) {
    return malformed('Authorization is not "Bearer" and one token');
  }
  if (apiKey !== undefined) {
    if (!token68.test(apiKey)) return malformed('X-API-Key is not one token');
    if (token !== undefined && token !== apiKey) return malformed('Authorization and X-API-Key differ');
  }
  const value = token ?? apiKey;
  if (assertion === undefined) return { kind: 'token', value: value ?? '', isBearer: token !== undefined };
  if (!token68.test(assertion.value)) return malformed(`${assertion.header} is not one JWT`);
  if (value !== undefined && value !== assertion.value) {
    return malformed(`${assertion.header} and a token differ`);
  }
  return { kind: 'assertion', ...assertion };
}

function flyCredential(source: string | undefined, signature: string | undefined): Presented {
  if (source === undefined && signature === undefined) return none;
  if (source === undefined || signature === undefined) {
    return malformed('Fly-Src without signature, or reverse');
  }
  return { kind: 'fly', source, signature };
}

/**
 * Every value that came in a field for credentials, whatever it is worth: without its scheme, and of Basic also the
 * password (RFC 7617 section 2).
 *
 * @param assertions lower-case names of the fields that carry a JWT for some caller
 */
export function presentedValues(
  rawHeaders: readonly string[],
  assertions: readonly string[],
): readonly string[] {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!mayCarryCredential(name, assertions)) continue;
    const value = rawHeaders[index + 1] ?? '';
    values.push(...value.split(/[\s,]+/));
    const basic = /^basic +(\S+)/i.exec(value)?.[1];
    if (basic !== undefined) values.push(passwordOf(basic));
  }
  return values;
}

function mayCarryCredential(written: string, assertions: readonly string[]): boolean {
  const { length } = written;
  // Most names have another length: the hot path lower-cases next to nothing.
  if (length !== 13 && length !== 9 && assertions.length === 0) return false;
  const name = written.toLowerCase();
  return name === 'authorization' || name === 'x-api-key' || assertions.includes(name);
}

function passwordOf(basic: string): string {
  const text = Buffer.from(basic, 'base64').toString('latin1');
  return text.slice(text.indexOf(':') + 1);
}

/** The shortest upstream key. A shorter text that came as a credential could be any word of a query. */
export const leastCharacters = 16;

/**
 * Whether a caller's text holds a credential, under whatever name: URLs and ids stand in access logs, histories and
 * `Referer` fields, on both sides of the gateway. A credential is a token of our making, one that came with the request,
 * or the upstream key. The text is searched as it came, and percent-decoded until nothing changes, five times at most; and
 * each of these as base64 from its beginning.
 *
 * @param presented the credentials that came with the request, whatever they are worth
 * @param holdsKey whether a text holds the upstream key, encoded or not
 */
export function holdsCredential(
  text: string,
  presented: readonly string[],
  holdsKey: (text: string) => boolean,
): boolean {
  // The padding of base64 is often left out in a URL, and the prefix of our tokens says nothing.
  const sought = listBeginnings(
    presented
      .map((credential) => credential.slice(credential.startsWith(tokenPrefix) ? tokenPrefix.length : 0))
      .map((credential) => (credential.endsWith('=') ? credential.replace(/={1,2}$/, '') : credential))
      .filter((credential) => credential.length >= leastCharacters),
  );
  const isFound = (reading: string): boolean =>
    holdsToken(reading) || sought.some((credential) => reading.includes(credential));
  const readings = listReadings(text);
  const isFoundInBase64 =
    text.length >= leastInBase64 &&
    readings.some((reading) => isFound(Buffer.from(reading, 'base64').toString('latin1')));
  return isFoundInBase64 || readings.some(isFound) || holdsKey(text);
}

/** A token of ours without its prefix has 49 characters: 66 in base64. */
const leastInBase64 = 66;

/**
 * V8 finds a text of no more than 250 characters in linear time. For a longer one it may begin again at each place, and who
 * chooses both texts chooses that.
 */
const soughtCharacters = 128;

/** What is sought of credentials: of a long one the beginning, which has its random part or says what it is. */
export function listBeginnings(credentials: readonly string[]): readonly string[] {
  return [...new Set(credentials.map((credential) => credential.slice(0, soughtCharacters)))];
}

/** The text as it came and percent-decoded. A form writes a blank as `+`: no credential has a blank, so one here was a `+`. */
export function listReadings(text: string): readonly string[] {
  return decodings(text).map((decoded) => decoded.replaceAll(' ', '+'));
}
