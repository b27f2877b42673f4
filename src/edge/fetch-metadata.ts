/**
 * Whether a request without credential comes from a web page that has no business here. Loopback is a place, not
 * an identity: every tab on the machine can send there, and a blind GET needs no CORS.
 * Pure: no `this`, no I/O, no clock.
 */

export interface FetchMetadata {
  /** `Sec-Fetch-Site`; browsers set it, and no page can. */
  readonly site: string | undefined;
  readonly origin: string | undefined;
  /** The request's own `Host`, checked before: what `Origin` is compared with where there is no `Sec-Fetch-Site`. */
  readonly host: string | undefined;
}

/**
 * Whether an anonymous caller's request must be refused (`origin-not-allowed`). Scripts send neither field and
 * pass. An address typed into the address bar (`none`) passes, as does the gateway's own page. Another page
 * passes only when it names a listed origin: without `Origin` (an image, a link) it can't show that it is.
 *
 * @param isOriginAllowed whether the origin is in CORS_ORIGINS
 */
export function isForeignPage(
  { site, origin, host }: FetchMetadata,
  isOriginAllowed: (origin: string) => boolean,
): boolean {
  if (origin !== undefined && isOriginAllowed(origin)) return false;
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  if (origin === undefined) return false;
  // An older browser. `null` and everything that is not this host is foreign. An origin comes in lower case; a host may
  // come in any (RFC 9110 section 4.2.3).
  const own = host?.toLowerCase();
  return own === undefined || (origin !== `http://${own}` && origin !== `https://${own}`);
}
