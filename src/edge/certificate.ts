/** The certificate and private key that the callers' listener shows: read from two files, and again when they change. */

import { createPrivateKey, hash, type KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Config } from '../config/config.ts';
import { errorCode, SettingError } from '../errors.ts';
import { explainDenied, NotAFileError, readText } from '../files/read.ts';
import { type FileWatch, watchForChanges } from '../files/watch.ts';

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

/** Older versions are refused (RFC 8996). */
export const minTlsVersion = 'TLSv1.2';

/** Why a pair cannot be used, in plain words that name the settings and no value. */
class CertificateError extends SettingError {
  override readonly name = 'CertificateError';
}

/** @throws CertificateError for files that cannot be read, or are no pair */
export async function readCertificate({ certFile, keyFile }: CertificateFiles): Promise<CertificatePair> {
  const [{ text: cert, parsed: certificate }, { text: key, parsed: privateKey }] = await bothOf(
    readAs('TLS_CERT_FILE', certFile, (text) => new X509Certificate(text), 'holds no certificate in PEM'),
    readAs(
      'TLS_KEY_FILE',
      keyFile,
      createPrivateKey,
      'holds no private key in PEM that can be read without a passphrase',
    ),
  );
  checkPair(certificate, privateKey);
  parse(
    () => createSecureContext({ cert, key, minVersion: minTlsVersion }),
    'TLS_CERT_FILE and TLS_KEY_FILE are not accepted by OpenSSL: a weak key, or a broken chain',
  );
  const { validFromDate, validToDate } = certificate;
  return { cert, key, validFrom: validFromDate.toISOString(), validTo: validToDate.toISOString() };
}

function checkPair(certificate: X509Certificate, privateKey: KeyObject): void {
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new CertificateError('TLS_KEY_FILE is not the key of the first certificate in TLS_CERT_FILE');
  }
  if (certificate.validToDate.getTime() <= Date.now()) {
    throw new CertificateError('the certificate in TLS_CERT_FILE has expired');
  }
}

async function readNamed(setting: string, file: string): Promise<string> {
  try {
    return await readText(file);
  } catch (error) {
    if (error instanceof NotAFileError)
      throw new CertificateError(`${setting} names ${error.kind}, not a file`);
    throw new CertificateError(
      `${setting} names a file that cannot be read (${errorCode(error) ?? 'unknown'})${explainDenied(file, error)}`,
    );
  }
}

/** @throws CertificateError with the problems of both */
async function bothOf<One, Other>(one: Promise<One>, other: Promise<Other>): Promise<[One, Other]> {
  const settled = await Promise.allSettled([one, other]);
  const failures = settled.flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []));
  if (failures.length === 2) {
    throw new CertificateError(...failures.map((failure) => (failure as Error).message));
  }
  return Promise.all([one, other]);
}

async function readAs<T>(
  setting: string,
  file: string,
  make: (text: string) => T,
  problem: string,
): Promise<{ text: string; parsed: T }> {
  const text = await readNamed(setting, file);
  return { text, parsed: parse(() => make(text), `${setting} ${problem}`) };
}

function parse<T>(make: () => T, problem: string): T {
  try {
    return make();
  } catch {
    // OpenSSL's own messages may quote what it read.
    throw new CertificateError(problem);
  }
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

/** A pair that changes is written as two files, one after the other: it is judged once it has stood for this long. */
const settledMs = 1_000;

/** The pair in force. */
export class FollowedCertificate {
  readonly #files: CertificateFiles;
  readonly #events: CertificateEvents;
  readonly #watches: readonly FileWatch[];
  #current: CertificatePair;
  #digest: string;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** How many readings have begun: one that a later one has overtaken is dropped. */
  #readings = 0;
  #isClosed = false;

  constructor(files: CertificateFiles, current: CertificatePair, events: CertificateEvents) {
    this.#files = files;
    this.#events = events;
    this.#current = current;
    this.#digest = digestOf(current);
    this.#watches = [files.certFile, files.keyFile].map((file) =>
      watchForChanges(file, () => void this.#read(false)),
    );
  }

  get current(): CertificatePair {
    return this.#current;
  }

  readonly snapshot = (): CertificateSnapshot => ({
    validFrom: Date.parse(this.#current.validFrom),
    validTo: Date.parse(this.#current.validTo),
    problem: this.#problem,
  });

  /** Reads both files at once, and says at once what is wrong with them. Never rejects. */
  reload(): Promise<void> {
    this.#problem = undefined;
    return this.#read(true);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const watch of this.#watches) watch.close();
  }

  async #read(isSettled: boolean): Promise<void> {
    clearTimeout(this.#timer);
    const reading = ++this.#readings;
    const isOvertaken = (): boolean => this.#isClosed || reading !== this.#readings;
    try {
      const pair = await readCertificate(this.#files);
      if (isOvertaken()) return;
      this.#problem = undefined;
      if (digestOf(pair) === this.#digest) return;
      this.#digest = digestOf(pair);
      this.#current = pair;
      this.#events.onReplaced(pair);
    } catch (error) {
      if (!(error instanceof CertificateError)) throw error;
      if (!isOvertaken()) this.#report(error.message, isSettled);
    }
  }

  #report(problem: string, isSettled: boolean): void {
    if (!isSettled) {
      this.#timer = setTimeout(() => void this.#read(true), settledMs);
      this.#timer.unref();
    } else if (problem !== this.#problem) {
      this.#problem = problem;
      this.#events.onProblem(problem);
    }
  }
}

function digestOf({ cert, key }: CertificatePair): string {
  return hash('sha256', `${cert}\0${key}`);
}
