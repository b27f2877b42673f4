/**
 * Fetches the text of a key set: 200 and nothing else (a redirect could lead anywhere), bounded in size and time.
 * The address is from the callers file; nothing of a caller is in the request.
 */
import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import { errorCode } from '../errors.ts';

const maxKeySetBytes = 256 * 1024;
const keySetTimeoutMs = 5_000;

/** Why a key set cannot be had, in words for status and `check`. */
export function describeKeySetFailure(error: unknown): string {
  const code = errorCode(error);
  if (code !== undefined) return explained[code] ?? `it failed with ${code}`;
  return error instanceof Error ? error.message : 'it failed';
}

/** What is most often wrong, as whole clauses. Node's own messages for a name or a certificate say no more. */
const explained: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was broken off',
  ENOTFOUND: 'the host name is not known',
  EAI_AGAIN: 'the host name cannot be looked up now',
  ETIMEDOUT: 'the connection was not taken in time',
  EPROTO: 'no TLS connection could be agreed on',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is signed by an unknown authority',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is signed by an unknown authority',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is signed by an unknown authority',
};

/** @throws Error that says what was wrong, without any text of the answer */
export function fetchKeySet(address: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const url = new URL(address);
    const get = url.protocol === 'https:' ? getHttps : getHttp;
    const headers = { accept: 'application/jwk-set+json, application/json', 'accept-encoding': 'identity' };
    // Verified whatever an environment variable says.
    const request = get(url, { headers, agent: false, rejectUnauthorized: true }, onResponse);
    const timer = setTimeout(() => {
      request.destroy(new Error(`the key set did not come within ${keySetTimeoutMs} ms`));
    }, keySetTimeoutMs);
    timer.unref();

    function fail(error: Error): void {
      clearTimeout(timer);
      reject(error);
    }

    function onResponse(response: IncomingMessage): void {
      response.on('error', fail);
      if (response.statusCode !== 200) {
        request.destroy(new Error(`the key set's address answered ${response.statusCode}`));
        return;
      }
      const parts: Buffer[] = [];
      let bytes = 0;
      response.on('data', (part: Buffer) => {
        bytes += part.length;
        if (bytes > maxKeySetBytes)
          request.destroy(new Error(`the key set has more than ${maxKeySetBytes} bytes`));
        else parts.push(part);
      });
      response.on('end', () => {
        clearTimeout(timer);
        // A truncated body never gets here as a success: Node reports it as an error.
        resolve(Buffer.concat(parts).toString('utf8'));
      });
    }

    request.on('error', fail);
    // Also where Node reports no error: an answer of 101 ends the connection without one.
    request.on('close', () => fail(new Error('the connection ended before the key set')));
  });
}
