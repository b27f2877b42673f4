/** A company login over loopback: makes JWTs, shows its public keys, and can forget one of them. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { onTestFinished } from 'vitest';

export const issuerName = 'https://login.example.com';
export const audience = 'analytics-gateway';

export interface SigningKey {
  readonly kid: string;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly jwk: JWK;
}

export async function makeSigningKey(kid: string): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
  return {
    kid,
    privateKey,
    publicKey,
    jwk: { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' },
  };
}

/** A JWT of Ann's for the gateway; `claims` and `header` change it. */
export function signJwt(by: SigningKey, claims: JWTPayload = {}, header: object = {}): Promise<string> {
  const exp = Math.floor(Date.now() / 1_000) + 300;
  return new SignJWT({ iss: issuerName, aud: audience, exp, email: 'ann@example.com', ...claims })
    .setProtectedHeader({ alg: 'ES256', kid: by.kid, ...header })
    .sign(by.privateKey);
}

export interface Issuer {
  /** Where its key set is. */
  readonly jwks: string;
  /** What the set shows at the moment. */
  keys: readonly JWK[];
  /** The status it answers with. */
  status: number;
  /** How often it was asked. */
  readonly asked: number;
}

/** Starts it, and ends it with the test. */
export async function startIssuer(keys: readonly JWK[]): Promise<Issuer> {
  let asked = 0;
  const server = createServer((_request, response) => {
    asked++;
    response.statusCode = issuer.status;
    response.end(JSON.stringify({ keys: issuer.keys }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())));
  const issuer = {
    jwks: `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`,
    keys,
    status: 200,
    get asked() {
      return asked;
    },
  };
  return issuer;
}
