/** A self-signed certificate made on the spot, so that no private key lies in the repository. */
import { createSign, generateKeyPairSync, randomBytes } from 'node:crypto';

export interface CertificateOptions {
  /** The DNS names it is for. Default `localhost`. */
  readonly names?: readonly string[];
  /** The IPv4 addresses it is for. Default 127.0.0.1. */
  readonly addresses?: readonly string[];
  /** Default: a day ago and in a day. */
  readonly notBefore?: Date;
  readonly notAfter?: Date;
  /** Whom it names: its common name. Default `stand-in`. */
  readonly subject?: string;
}

export function makeCertificate(options: CertificateOptions = {}): { key: string; cert: string } {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { names = ['localhost'], addresses = ['127.0.0.1'], subject = 'stand-in' } = options;
  const { notBefore = new Date(Date.now() - 86_400_000), notAfter = new Date(Date.now() + 86_400_000) } =
    options;
  const ecdsaWithSha256 = der(0x30, objectId('2a8648ce3d040302'));
  const commonName = der(0x30, der(0x31, der(0x30, objectId('550403'), der(0x0c, Buffer.from(subject)))));
  const alternatives = der(
    0x30,
    ...names.map((name) => der(0x82, Buffer.from(name))),
    ...addresses.map((address) => der(0x87, Buffer.from(address.split('.').map(Number)))),
  );
  const extension = der(0x30, objectId('551d11'), der(0x04, alternatives));
  const toSign = der(
    0x30,
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    commonName,
    der(0x30, time(notBefore), time(notAfter)),
    commonName,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, der(0x30, extension)),
  );
  const signature = createSign('sha256').update(toSign).sign(privateKey);
  const certificate = der(0x30, toSign, ecdsaWithSha256, der(0x03, Buffer.from([0]), signature));
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${certificate.toString('base64')}\n-----END CERTIFICATE-----\n`,
  };
}

/** Tag, length, value (X.690 section 8.1). */
function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const value = Buffer.concat(parts);
  const { length } = value;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), value]);
}

function objectId(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, 'hex'));
}

function time(date: Date): Buffer {
  return der(0x18, Buffer.from(`${date.toISOString().replace(/[-:T]/g, '').slice(0, 14)}Z`));
}
