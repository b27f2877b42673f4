import { describe, expect, it } from 'vitest';
import { isForeignPage } from '../../src/edge/fetch-metadata.ts';

const listed = (origin: string) => origin === 'https://good.example';
const host = 'localhost:8080';

describe('an anonymous request', () => {
  it.each<[string, string | undefined, string | undefined, boolean]>([
    ['of a script', undefined, undefined, false],
    ['typed into the address bar', 'none', undefined, false],
    ["of the gateway's own page", 'same-origin', undefined, false],
    ["of the gateway's own page in an older browser", undefined, 'http://localhost:8080', false],
    ["of the gateway's own page over TLS in an older browser", undefined, 'https://localhost:8080', false],
    ['of a listed page', 'cross-site', 'https://good.example', false],
    ['of a listed page on the same site', 'same-site', 'https://good.example', false],
    ['of an image on a foreign page', 'cross-site', undefined, true],
    ['of a page on another port of the machine', 'same-site', 'http://localhost:3000', true],
    ['of a foreign page', 'cross-site', 'https://good.example.evil', true],
    ['of a foreign page in an older browser', undefined, 'https://evil.example', true],
    ['of a sandboxed frame', 'cross-site', 'null', true],
    ['of a sandboxed frame in an older browser', undefined, 'null', true],
    ['with a word that no browser sends', 'trusted', undefined, true],
    ['with the field sent twice', 'same-origin, cross-site', undefined, true],
    ['of another port in an older browser', undefined, 'http://localhost:80800', true],
  ])('an anonymous request is judged by its site and origin: %s', (_, site, origin, isForeign) => {
    expect(isForeignPage({ site, origin, host }, listed)).toBe(isForeign);
  });

  it('a Host in capitals is the origin of its own page in an older browser', () => {
    const own = { site: undefined, origin: 'http://localhost:8080', host: 'LOCALHOST:8080' };
    expect(isForeignPage(own, listed)).toBe(false);
  });

  it('a request without Host has no origin of its own', () => {
    expect(isForeignPage({ site: undefined, origin: 'http://undefined', host: undefined }, listed)).toBe(
      true,
    );
  });
});
