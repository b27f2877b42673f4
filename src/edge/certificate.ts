/** The certificate and private key that the callers' listener shows: read from two files, and again when they change. */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Config } from '../config/config.ts';
import { errorCode, SettingError } from '../errors.ts';
import { explainDenied, FollowedFiles, NotAFileError, type ReadFile, readText } from '../files/read.ts';

/** Two files in PEM: the certificate with its chain, and its private key. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
}

/** What the callers' listener shows with these settings; `undefined` where it speaks plain HTTP. */
export function certificateFiles({
  TLS_CERT_FILE: certFile,
  TLS_KEY_FILE: keyFile,
}: Partial<Pick<Config, 'TLS_CERT_FILE' | 'TLS_KEY_FILE'>>): CertificateFiles | undefined {
  return certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile };
}

export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
  /** When it begins to hold, by the certificate itself: ISO 8601. */
  readonly validFrom: string;
  /** When callers begin to refuse it, by the certificate itself: ISO 8601. */
  readonly validTo: string;
}

/** Older versions are refused (RFC 8996), and so are the ciphers of TLS 1.2 with CBC or without forward secrecy. */
export const tlsRules = {
  minVersion: 'TLSv1.2',
  ciphers:
    'TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:ECDHE+AESGCM:ECDHE+CHACHA20',
} as const;

/** Why a pair cannot be used, in plain words that name the settings and no value. */
class CertificateError extends SettingError {
  override readonly name = 'CertificateError';
}

/** @throws CertificateError for files that cannot be read, or are no pair */
export async function readCertificate({ certFile, keyFile }: CertificateFiles): Promise<CertificatePair> {
  const [cert, key] = await Promise.allSettled([readText(certFile), readText(keyFile)]);
  return pairOf({ certFile, keyFile }, cert, key);
}

/** @throws CertificateError with the problems of both files */
function pairOf({ certFile, keyFile }: CertificateFiles, cert: ReadFile, key: ReadFile): CertificatePair {
  const certificate = parse(
    'TLS_CERT_FILE',
    certFile,
    cert,
    (text) => new X509Certificate(text),
    noCertificate,
  );
  const privateKey = parse('TLS_KEY_FILE', keyFile, key, createPrivateKey, noPrivateKey);
  if ('problem' in certificate || 'problem' in privateKey) {
    throw new CertificateError(
      ...[certificate, privateKey].flatMap((one) => ('problem' in one ? [one.problem] : [])),
    );
  }
  checkPair(certificate.value, privateKey.value);
  const pair = { cert: certificate.text, key: privateKey.text };
  try {
    createSecureContext({ ...pair, ...tlsRules });
  } catch {
    // OpenSSL's own messages may quote what it read.
    throw new CertificateError(
      'TLS_CERT_FILE and TLS_KEY_FILE are not accepted by OpenSSL: a weak key, or a broken chain',
    );
  }
  const { validFromDate, validToDate } = certificate.value;
  return { ...pair, validFrom: validFromDate.toISOString(), validTo: validToDate.toISOString() };
}

const noCertificate = 'holds no certificate in PEM';
const noPrivateKey = 'holds no private key in PEM that can be read without a passphrase';

function checkPair(certificate: X509Certificate, privateKey: KeyObject): void {
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new CertificateError('TLS_KEY_FILE is not the key of the first certificate in TLS_CERT_FILE');
  }
  if (certificate.validToDate.getTime() <= Date.now()) {
    throw new CertificateError('the certificate in TLS_CERT_FILE has expired');
  }
}

/** What a file holds, or what is wrong with it. */
function parse<T>(
  setting: string,
  file: string,
  found: ReadFile,
  make: (text: string) => T,
  problem: string,
): { readonly text: string; readonly value: T } | { readonly problem: string } {
  if (found.status === 'rejected')
    return { problem: `${setting} names ${whyUnreadable(file, found.reason)}` };
  try {
    return { text: found.value, value: make(found.value) };
  } catch {
    // OpenSSL's own messages may quote what it read.
    return { problem: `${setting} ${problem}` };
  }
}

function whyUnreadable(file: string, error: unknown): string {
  if (error instanceof NotAFileError) return `${error.kind}, not a file`;
  return `a file that cannot be read (${errorCode(error) ?? 'unknown'})${explainDenied(file, error)}`;
}

/** The pair in force, as it is shown. Times are wall clock, ms. */
export interface CertificateSnapshot {
  readonly validFrom: number;
  readonly validTo: number;
  /** Why the files' newest pair is not in force; `undefined` where it is. */
  readonly problem: string | undefined;
}

export interface CertificateEvents {
  /** A new pair holds for connections that begin from now on. */
  onReplaced(pair: CertificatePair): void;
  /** The files hold nothing usable, so the pair from before is kept. Once for each problem. */
  onProblem(problem: string): void;
}

/** The pair in force. */
export class FollowedCertificate {
  readonly #files: CertificateFiles;
  readonly #events: CertificateEvents;
  readonly #followed: FollowedFiles;
  #current: CertificatePair;
  #problem: string | undefined;

  constructor(files: CertificateFiles, current: CertificatePair, events: CertificateEvents) {
    this.#files = files;
    this.#events = events;
    this.#current = current;
    this.#followed = new FollowedFiles({
      files: [files.certFile, files.keyFile],
      texts: [current.cert, current.key],
      onChange: ([cert, key]) => cert && key && this.#onChange(cert, key),
    });
  }

  get current(): CertificatePair {
    return this.#current;
  }

  readonly snapshot = (): CertificateSnapshot => ({
    validFrom: Date.parse(this.#current.validFrom),
    validTo: Date.parse(this.#current.validTo),
    problem: this.#problem,
  });

  /** Reads both files at once, and says again what is wrong with them. Never rejects. */
  reload(): Promise<void> {
    this.#problem = undefined;
    return this.#followed.readNow();
  }

  close(): void {
    this.#followed.close();
  }

  #onChange(cert: ReadFile, key: ReadFile): void {
    try {
      const pair = pairOf(this.#files, cert, key);
      this.#problem = undefined;
      if (pair.cert === this.#current.cert && pair.key === this.#current.key) return;
      this.#current = pair;
      this.#events.onReplaced(pair);
    } catch (error) {
      if (!(error instanceof CertificateError)) throw error;
      if (error.message === this.#problem) return;
      this.#problem = error.message;
      this.#events.onProblem(error.message);
    }
  }
}
