import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { findInJson, leadLinksBack, namesBase, patternFor, putInPlaces } from '../../src/http/links.ts';
import type { Payload } from '../../src/http/payload.ts';

const upstream = new URL('https://analytics.example.com/api');
const ours = 'https://gateway.internal/api';

function ledBack(body: Payload, base: URL = upstream): Payload {
  return putInPlaces(body, [...findInJson(body, patternFor(base))].flat(), ours);
}

/** The text with each of its characters escaped. */
function escaped(text: string): string {
  return Array.from(text, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
}

describe('strings of JSON that begin with the upstream’s base address', () => {
  it.each<[string, string, string]>([
    ['a page', '{"next":"https://analytics.example.com/api/x/?page=2"}', `{"next":"${ours}/x/?page=2"}`],
    ['the address alone', '["https://analytics.example.com/api"]', `["${ours}"]`],
    ['a query', '["https://analytics.example.com/api?a"]', `["${ours}?a"]`],
    ['a fragment', '["https://analytics.example.com/api#a"]', `["${ours}#a"]`],
    ['a text alone', '"https://analytics.example.com/api/"', `"${ours}/"`],
    ['a name', '{"https://analytics.example.com/api/x":1}', `{"${ours}/x":1}`],
    ['escaped slashes', '["https:\\/\\/analytics.example.com\\/api\\/x"]', `["${ours}\\/x"]`],
    ['escaped letters', `["${escaped('https://analytics.example.com/api')}\\u002fx"]`, `["${ours}\\u002fx"]`],
    [
      'hexadecimal digits of either case',
      '["https:\\u002F\\u002fanalytics.example.com/api/"]',
      `["${ours}/"]`,
    ],
    ['another case of scheme and host', '["HTTPS://Analytics.Example.COM/api/"]', `["${ours}/"]`],
    ['the default port', '["https://analytics.example.com:443/api/"]', `["${ours}/"]`],
    ['an empty port', '["https://analytics.example.com:/api/"]', `["${ours}/"]`],
    [
      'numbers, spaces and escapes as they came',
      ' { "a" : 1.0e2 , "b":"\\u00e9\\/","c":"https://analytics.example.com/api/" }\n',
      ` { "a" : 1.0e2 , "b":"\\u00e9\\/","c":"${ours}/" }\n`,
    ],
    [
      'a backslash before the quote that ends a string',
      '["\\\\","https://analytics.example.com/api/"]',
      `["\\\\","${ours}/"]`,
    ],
  ])('strings of JSON are led back: %s', (_what, body, expected) => {
    expect(ledBack(body)).toBe(expected);
    expect(ledBack(Buffer.from(body, 'latin1'))).toEqual(Buffer.from(expected, 'latin1'));
  });

  it.each<[string, string]>([
    ['a longer path', '["https://analytics.example.com/apis/"]'],
    ['a longer host', '["https://analytics.example.com.evil.example/api/"]'],
    ['another path', '["https://analytics.example.com/app/"]'],
    ['a path in another case', '["https://analytics.example.com/API/"]'],
    ['another port', '["https://analytics.example.com:8443/api/"]'],
    ['a port that begins alike', '["https://analytics.example.com:4430/api/"]'],
    ['another scheme', '["http://analytics.example.com/api/"]'],
    ['user information', '["https://me@analytics.example.com/api/"]'],
    ['an address in the middle', '["see https://analytics.example.com/api/"]'],
    ['an address behind a quote within a string', '["see \\"https://analytics.example.com/api/\\""]'],
    ['the same behind more backslashes', '["\\\\\\"https://analytics.example.com/api/"]'],
    ['an escaped backslash in place of a slash', '["https:\\\\/\\\\/analytics.example.com/api/"]'],
    ['a word behind the address', '["https://analytics.example.com/api is the address"]'],
  ])('strings of JSON stay as they are: %s', (_what, body) => {
    expect(ledBack(body)).toBe(body);
  });

  it.each<[string, string, string]>([
    [
      'http://127.0.0.1:8000/api',
      '["http://127.0.0.1:8000/api/","http://127.0.0.1/api/"]',
      `["${ours}/","http://127.0.0.1/api/"]`,
    ],
    ['http://host.example/api', '["http://host.example:80/api/x"]', `["${ours}/x"]`],
    [
      'https://host.example',
      '["https://host.example/x","https://host.example","https://host.example.org"]',
      `["${ours}/x","${ours}","https://host.example.org"]`,
    ],
    [
      'https://[::1]:8443/a.b/api',
      '["https://[::1]:8443/a.b/api/x","https://[::1]:8443/a-b/api/x"]',
      `["${ours}/x","https://[::1]:8443/a-b/api/x"]`,
    ],
  ])('strings of JSON are led back from %s', (base, body, expected) => {
    expect(ledBack(body, new URL(base))).toBe(expected);
  });

  it('exactly the strings whose values begin with the address are changed, whatever else a text holds', () => {
    const beginning = fc.constantFrom(
      'https://analytics.example.com/api',
      'HTTPS://analytics.example.com:443/api',
      'https://analytics.example.com/ap',
      '"https://analytics.example.com/api',
      '\\https://analytics.example.com/api',
      '',
    );
    const rest = fc.constantFrom('', '/', '/x?page=2', '?a', '#b', 's', ' ', '"', '\\', '\\"', 'é', '\u0001');
    const text = fc.tuple(beginning, rest, rest).map((parts) => parts.join(''));
    const address = /^https:\/\/analytics\.example\.com(?::443)?\/api(?=[/?#]|$)/i;
    const spell = fc.func(fc.integer({ min: 0, max: 3 }));
    fc.assert(
      fc.property(fc.array(text, { maxLength: 12 }), spell, (texts, choose) => {
        // Each character as it is or escaped, in any of the ways that JSON has.
        const written = texts.map((one) => {
          const inside = Array.from(one, (character, at) => {
            const plain = JSON.stringify(character).slice(1, -1);
            const choice = choose(one, at);
            return choice === 1 ? escaped(character) : choice === 2 && character === '/' ? '\\/' : plain;
          });
          return `"${inside.join('')}"`;
        });
        const body = Buffer.from(`[${written.join(',')}]`);
        const expected = texts.map((one) => one.replace(address, ours));
        const led = ledBack(body.toString('latin1'));
        expect(JSON.parse(Buffer.from(led as string, 'latin1').toString())).toEqual(expected);
        if (texts.every((one) => !address.test(one))) expect(led).toBe(body.toString('latin1'));
      }),
      { numRuns: 500 },
    );
  });

  it('an address across the slices of a large text is found, once', () => {
    const link = '"https:\\/\\/analytics.example.com/api/x"';
    const longest = `"${escaped('https://analytics.example.com:443/api')}\\u002fx"`;
    const across = Buffer.from(`[${' '.repeat(256 * 1_024 - 2)}${longest}]`);
    expect(ledBack(across).toString()).toContain(`"${ours}\\u002fx"`);
    for (const shift of [0, 1, 20, 40, 41, 60]) {
      const before = `[${' '.repeat(256 * 1_024 - shift)}`;
      const body = Buffer.from(`${before}${link},${' '.repeat(256 * 1_024)}${link}]`);
      const places = [...findInJson(body, patternFor(upstream))];
      expect(places.length).toBe(3);
      expect(places.flat().length, String(shift)).toBe(2);
      expect(ledBack(body).toString()).toBe(body.toString().replaceAll(link, `"${ours}/x"`));
    }
  });

  it('a body that outgrows a small text is a buffer', () => {
    const body = `[${Array(400).fill('"https://analytics.example.com/api/"').join(',')}]`.slice(
      0,
      14 * 1_024,
    );
    expect(Buffer.isBuffer(putInPlaces(body, [[2, 2]], 'x'.repeat(100)))).toBe(true);
    expect(Buffer.isBuffer(putInPlaces(body, [], 'x'))).toBe(false);
  });

  it('only a JSON answer names the base address', () => {
    const names = (type: string, body: string) =>
      namesBase({ headers: { 'content-type': type }, body }, patternFor(upstream));
    const link = '["https://analytics.example.com/api/x"]';
    expect([names('application/json', link), names('text/plain', link)]).toEqual([true, false]);
    expect([names('application/json', '[]'), names('application/json', '')]).toEqual([false, false]);
  });
});

describe('Link (RFC 8288)', () => {
  const context = new URL('https://analytics.example.com/api/analytics/accounts/?page=1');
  const lead = (field: string, to = '/api') => leadLinksBack(field, context, { upstream, ours: to });

  it.each<[string, string, string | undefined, number]>([
    [
      'an address',
      '<https://analytics.example.com/api/x?page=2>; rel="next"',
      '</api/x?page=2>; rel="next"',
      0,
    ],
    ['an absolute path', '</api/x>; rel=next', '</api/x>; rel=next', 0],
    ['a query', '<?page=2>; rel=next', '</api/analytics/accounts/?page=2>; rel=next', 0],
    ['a relative path', '<../x>', '</api/analytics/x>', 0],
    ['an empty target', '<>; rel=self', '</api/analytics/accounts/?page=1>; rel=self', 0],
    ['the same host in another spelling', '<HTTPS://Analytics.example.com:443/api/x>', '</api/x>', 0],
    ['no scheme', '<//analytics.example.com/api/x>', '</api/x>', 0],
    ['the base address itself', '<https://analytics.example.com/api>', '</api>', 0],
    ['a password', '<https://:p@analytics.example.com/api/x>', undefined, 1],
    [
      'an anchor without quotes, and one with an escaped character',
      '</api/x>; anchor=/api/y, </api/x>; anchor="/ap\\i/y"',
      '</api/x>; anchor="/api/y", </api/x>; anchor="/api/y"',
      0,
    ],
    ['words behind the target with a quoted comma', '</api/x> "a\\",b", </api/y>', '</api/y>', 1],
    ['words behind the target with a backslash', '</api/x> a\\, </api/y>', '</api/y>', 1],
    ['a comma in the target', '</api/x?a=1,2>; rel=next', '</api/x?a=1,2>; rel=next', 0],
    [
      'a comma and a quote in a parameter',
      '</api/x>; title="a, \\"b"; rel=next, </api/y>',
      '</api/x>; title="a, \\"b"; rel=next, </api/y>',
      0,
    ],
    ['a parameter of RFC 8187', "</api/x>; title*=UTF-8''a%20b", "</api/x>; title*=UTF-8''a%20b", 0],
    ['empty members', ', </api/x> , ,', '</api/x>', 0],
    ['another host', '<https://elsewhere.example/api/x>; rel=next', undefined, 1],
    ['another scheme', '<http://analytics.example.com/api/x>', undefined, 1],
    ['above the base address', '</app>, <../../../x>, </apis>', undefined, 3],
    ['a way out by dots', '</api/../x>, </api/%2e%2e/x>', undefined, 2],
    ['user information', '<https://me@analytics.example.com/api/x>', undefined, 1],
    ['no address at all', '<https://[/>, <data:,x>', undefined, 2],
    ['another one beside a good one', '<https://elsewhere.example/>; title="a,b", </api/x>', '</api/x>', 1],
    [
      'an anchor that is led back as well',
      '</api/x>; anchor="https://analytics.example.com/api/y"; rel=next',
      '</api/x>; anchor="/api/y"; rel=next',
      0,
    ],
    ['a fragment as anchor', '</api/x>; anchor="#part"', '</api/x>; anchor="#part"', 0],
    ['an anchor elsewhere', '</api/x>; ANCHOR=https://elsewhere.example/', undefined, 1],
    ['no brackets', 'https://analytics.example.com/api/x; rel=next, </api/y>', '</api/y>', 1],
    ['a target that does not end', '</api/x; rel=next', undefined, 1],
    ['a quote that does not end', '</api/x>; title="a, </api/y>', undefined, 1],
    ['words behind the target', '</api/x> next, </api/y>', '</api/y>', 1],
    ['nothing', '', undefined, 0],
  ])('Link is led back: %s', (_what, field, value, dropped) => {
    expect(lead(field)).toEqual({ value, dropped });
  });

  it('Link grows to 32 KiB and no further, and what comes behind is not read', () => {
    const parsed = vi.spyOn(URL, 'parse');
    const { value, dropped } = leadLinksBack(
      '<#>,'.repeat(8_000),
      new URL(`?x=${'y'.repeat(8_000)}`, context),
      {
        upstream,
        ours,
      },
    );
    expect([value?.split(', ').length, dropped, parsed.mock.calls.length]).toEqual([4, 1, 5]);
    vi.restoreAllMocks();
  });

  it('Link leads to the public address where it is known, and to the workspace', () => {
    expect(lead('<?page=2>', 'https://gateway.internal/w/team-a/api').value).toBe(
      '<https://gateway.internal/w/team-a/api/analytics/accounts/?page=2>',
    );
  });
});
