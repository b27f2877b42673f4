import { describe, expect, it } from 'vitest';
import { corsPolicy, isForeignPage, isPreflight } from '../../src/edge/cross-origin.ts';

const none = () => [];
const nothingElse = { FORWARD_REQUEST_HEADERS: [], FORWARD_RESPONSE_HEADERS: [] };
const policy = corsPolicy(
  {
    CORS_ORIGINS: ['https://good.example', 'http://localhost:5173'],
    FORWARD_REQUEST_HEADERS: ['X-Assertion'],
    FORWARD_RESPONSE_HEADERS: ['X-Total'],
  },
  none,
);

describe('an origin', () => {
  it.each(['https://good.example', 'http://localhost:5173'])('a listed origin may read: %s', (origin) => {
    expect(policy.isAllowed(origin)).toBe(true);
    expect(policy.fieldsFor(origin)).toMatchObject({ 'access-control-allow-origin': origin, vary: 'Origin' });
  });

  it.each([
    'https://good.example.evil',
    'https://evil.good.example',
    'https://evilgood.example',
    'https://good.example:443',
    'https://good.example:8443',
    'https://good.example/',
    'https://good.example.',
    'https://GOOD.example',
    'http://good.example',
    'https://good.example@evil.example',
    'https://good.example https://evil.example',
    'https://good.example, https://evil.example',
    'https://good_example',
    'https://goodxexample',
    'http://localhost',
    'http://localhost:51730',
    'file://',
    'null',
    'NULL',
    '*',
    '',
    '__proto__',
    'constructor',
    'https://good.example.evil.example',
    'https://good.example:',
    'https://good.example/path',
    'https://good.example?',
    'https://good.example#',
    'https://GOOD.EXAMPLE',
    'HTTPS://good.example',
    'wss://good.example',
    'good.example',
    '//good.example',
    'https://user@good.example',
    'https://evil.example#https://good.example',
    'https://evil.example, https://good.example',
    'https://good.example,http://localhost:5173',
    'https://good.exampl\xe9',
    'http://127.0.0.1:5173',
    'http://[::1]:5173',
    'chrome-extension://good.example',
  ])('an origin that resembles a listed one may not read: %s', (origin) => {
    expect(policy.isAllowed(origin)).toBe(false);
    expect(policy.fieldsFor(origin)).toEqual({ vary: 'Origin' });
    expect(policy.preflightFields(origin)).toBeUndefined();
  });

  it('an origin is never allowed cookies, nor a star', () => {
    const all = [
      policy.fieldsFor('https://good.example'),
      policy.preflightFields('https://good.example') ?? {},
    ];
    for (const fields of all) {
      expect(Object.keys(fields)).not.toContain('access-control-allow-credentials');
      expect(Object.values(fields).join()).not.toContain('*');
    }
  });
});

describe('every answer', () => {
  it('every answer varies by Origin, also where none was sent', () => {
    expect(policy.fieldsFor(undefined)).toEqual({ vary: 'Origin' });
  });

  it('every answer exposes the fields that say how it came about', () => {
    const exposed = policy.fieldsFor('https://good.example')['access-control-expose-headers']?.split(', ');
    for (const name of [
      'Age',
      'Cache-Status',
      'ETag',
      'X-Request-ID',
      'Retry-After',
      'RateLimit',
      'RateLimit-Policy',
      'Proxy-Status',
      'Via',
      'X-Total',
    ]) {
      expect(exposed).toContain(name);
    }
  });

  it('an answer has no CORS fields and no Vary where no origins are listed', () => {
    const without = corsPolicy({ ...nothingElse, CORS_ORIGINS: [] }, none);
    expect(without.fieldsFor('https://good.example')).toEqual({});
    expect(without.preflightFields('https://good.example')).toBeUndefined();
  });
});

describe('a preflight', () => {
  it('a preflight is OPTIONS with Origin and the method asked for', () => {
    expect(isPreflight('OPTIONS', 'https://good.example', 'GET')).toBe(true);
    expect(isPreflight('OPTIONS', 'https://good.example', undefined)).toBe(false);
    expect(isPreflight('OPTIONS', undefined, 'GET')).toBe(false);
    expect(isPreflight('GET', 'https://good.example', 'GET')).toBe(false);
  });

  it('the reply to a preflight lists the reads and fields a page may send, and mirrors nothing', () => {
    const fields = policy.preflightFields('https://good.example');
    expect(fields).toEqual({
      'access-control-allow-origin': 'https://good.example',
      'access-control-allow-methods': 'GET, HEAD',
      'access-control-allow-headers':
        'Content-Type, Cache-Control, Pragma, X-Request-ID, traceparent, tracestate, Authorization, X-API-Key, If-Modified-Since, If-None-Match, Prefer, X-Assertion',
      'access-control-max-age': '7200',
      vary: 'Origin',
    });
  });

  it('the reply to a preflight lists the fields that carry credentials at the moment', () => {
    let fields = ['x-one'];
    const { preflightFields } = corsPolicy(
      { ...nothingElse, CORS_ORIGINS: ['https://good.example'] },
      () => fields,
    );
    const told = () => preflightFields('https://good.example')?.['access-control-allow-headers'];
    expect(told()).toMatch(/Prefer, x-one$/);
    fields = ['x-two'];
    expect(told()).toMatch(/Prefer, x-two$/);
  });
});

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
    ['of a listed page in an older browser', undefined, 'https://good.example', false],
    ['of a listed page on the same site', 'same-site', 'https://good.example', false],
    ['of an image on a foreign page', 'cross-site', undefined, true],
    ['of a page on another port of the machine', 'same-site', 'http://localhost:3000', true],
    ['of a foreign page', 'cross-site', 'https://good.example.evil', true],
    ['of a foreign page in an older browser', undefined, 'https://evil.example', true],
    ['of a sandboxed frame', 'cross-site', 'null', true],
    ['of a sandboxed frame in an older browser', undefined, 'null', true],
    ['with a word that no browser sends', 'trusted', undefined, true],
    ['of a page on another port, without Origin', 'same-site', undefined, true],
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
