import { describe, expect, it } from 'vitest';
import { announcesBody, findPeerBehind, headRefusal, requestTarget } from '../../src/edge/request-head.ts';

const findPeer = findPeerBehind(['10.0.0.0/8', '192.0.2.7', 'fd00::/8']);
const balancer = '10.0.0.1';

/** Fields as they came: names and values in turn. */
const xff = (...values: string[]): string[] => values.flatMap((value) => ['X-Forwarded-For', value]);
const forwarded = (...values: string[]): string[] => values.flatMap((value) => ['Forwarded', value]);

describe('the peer behind balancers', () => {
  it.each<[string, readonly string[], string | undefined]>([
    ['no field', [], balancer],
    ['one hop', xff('203.0.113.9'), '203.0.113.9'],
    ['a trusted hop before the balancer', xff('203.0.113.9, 192.0.2.7'), '203.0.113.9'],
    ['a spoofed beginning', xff('198.51.100.1, 203.0.113.9, 10.9.9.9'), '203.0.113.9'],
    ['a spoofed beginning that claims to be trusted', xff('10.1.1.1, 203.0.113.9'), '203.0.113.9'],
    ['a caller inside a trusted network', xff('10.1.2.3'), '10.1.2.3'],
    ['a list over several fields', xff('198.51.100.1', '203.0.113.9', '10.2.2.2'), '203.0.113.9'],
    ['blanks and no blanks', xff('198.51.100.1,\t203.0.113.9 ,10.2.2.2'), '203.0.113.9'],
    ['a port', xff('203.0.113.9:4711'), '203.0.113.9'],
    ['IPv6', xff('2001:db8::9'), '2001:db8::9'],
    ['IPv6 in brackets', xff('[2001:db8::9]'), '2001:db8::9'],
    ['IPv6 with a port', xff('[2001:db8::9]:4711, fd00::2'), '2001:db8::9'],
    ['IPv4 mapped into IPv6', xff('203.0.113.9, ::ffff:10.0.0.7'), '203.0.113.9'],
    ['unknown', xff('unknown'), balancer],
    ['unknown before a trusted hop', xff('203.0.113.9, unknown, 10.5.5.5'), '10.5.5.5'],
    ['an empty field', xff(''), balancer],
    ['an empty hop', xff('203.0.113.9,'), balancer],
    ['no address', xff('203.0.113.9, evil.example'), balancer],
    ['more than one address in a hop', xff('203.0.113.9 198.51.100.1'), balancer],
    ['Forwarded', forwarded('for=203.0.113.9;proto=https;by=10.0.0.1'), '203.0.113.9'],
    ['Forwarded in another case', forwarded('Proto=http;FOR="203.0.113.9:80"'), '203.0.113.9'],
    ['Forwarded with IPv6', forwarded('for="[2001:db8::9]:4711"'), '2001:db8::9'],
    ['Forwarded over several fields', forwarded('for=198.51.100.1', 'for=203.0.113.9'), '203.0.113.9'],
    ['Forwarded with a list', forwarded('for=198.51.100.1, for=203.0.113.9, for=10.1.1.1'), '203.0.113.9'],
    ['Forwarded with unknown', forwarded('for=198.51.100.1, for=unknown'), balancer],
    ['Forwarded with an obfuscated hop', forwarded('for=_hidden'), balancer],
    ['Forwarded without for', forwarded('for=198.51.100.1, proto=https'), balancer],
    ['Forwarded with for twice', forwarded('for=198.51.100.1;for=203.0.113.9'), balancer],
    [
      'Forwarded with a separator in quotes',
      forwarded('for="a, for=198.51.100.1", for=203.0.113.9'),
      '203.0.113.9',
    ],
    ['a quote that its caller left open', forwarded('for=198.51.100.1;by=", for=203.0.113.9'), balancer],
    ['an open quote in a field of the caller', forwarded('for="', 'for=203.0.113.9'), '203.0.113.9'],
    ['both fields, alike', [...xff('203.0.113.9'), ...forwarded('for=203.0.113.9')], '203.0.113.9'],
    [
      'both fields, one of them the caller’s own',
      [...xff('203.0.113.9'), ...forwarded('for=1.1.1.1')],
      balancer,
    ],
    ['a field with an underscore', ['X_Forwarded_For', '203.0.113.9'], balancer],
    ['a field that is named in a value', ['X-A', 'x-forwarded-for', 'X-B', '203.0.113.9'], balancer],
    ['a field whose name is an address', ['X-A', 'x-forwarded-for', '203.0.113.9', 'X-B'], balancer],
    ['both fields, one of them malformed', [...xff('203.0.113.9'), ...forwarded('for="')], balancer],
    ['Forwarded with an escaped character', forwarded('for="\\203.0.113.9"'), '203.0.113.9'],
    ['Forwarded with another name that ends so', forwarded('xfor=203.0.113.9'), balancer],
    ['Forwarded with more behind the node', forwarded('for=203.0.113.9 x'), balancer],
    ['more before the brackets of IPv6', xff('x[2001:db8::9]'), balancer],
    ['more behind the brackets of IPv6', xff('[2001:db8::9]x'), balancer],
  ])('is the nearest hop that is not trusted: %s', (_case, rawHeaders, peer) => {
    expect(findPeer(balancer, rawHeaders)).toBe(peer);
  });

  it.each(['203.0.113.1', '2001:db8::1', '192.0.2.8', undefined])(
    'is the other end of the connection where that is not trusted: %s',
    (connected) => {
      const rawHeaders = [...xff('10.1.1.1'), ...forwarded('for=10.1.1.1')];
      expect(findPeer(connected, rawHeaders)).toBe(connected);
      expect(findPeerBehind([])(connected, rawHeaders)).toBe(connected);
    },
  );

  it('is told by the other end of a Unix socket where that is trusted', () => {
    const rawHeaders = xff('203.0.113.9');
    expect(findPeerBehind(['unix'])(undefined, rawHeaders)).toBe('203.0.113.9');
    expect(findPeerBehind(['unix'])(balancer, rawHeaders)).toBe(balancer);
  });

  it('a trusted address in another spelling is the same', () => {
    expect(findPeer('::ffff:10.0.0.1', xff('203.0.113.9'))).toBe('203.0.113.9');
    expect(findPeerBehind(['::ffff:10.0.0.0/104'])('10.0.0.1', xff('203.0.113.9'))).toBe('203.0.113.9');
  });
});

describe('a head that Node’s parser lets pass (RFC 9112)', () => {
  const host = ['Host', 'localhost'];

  it.each<[string, string, string[], string | undefined, string | undefined]>([
    ['one Host', '1.1', host, undefined, undefined],
    ['one Host in HTTP/1.0', '1.0', host, undefined, undefined],
    ['no Host in HTTP/1.0', '1.0', ['A', 'b'], undefined, undefined],
    ['no Host', '1.1', ['A', 'b', 'hos', 'a', 'hosts', 'a'], undefined, '400 NO_HOST'],
    ['two Hosts', '1.1', [...host, 'hOST', 'localhost'], undefined, '400 HOST_REPEATED'],
    ['two Hosts in HTTP/1.0', '1.0', [...host, ...host], undefined, '400 HOST_REPEATED'],
    ['a Host that is no name', '1.1', ['Host', 'a, b'], undefined, '400 HOST_MALFORMED'],
    ['an empty Host', '1.1', ['Host', ''], undefined, '400 HOST_MALFORMED'],
    ['chunks', '1.1', host, 'gzip, Chunked', undefined],
    ['another last coding', '1.1', host, 'chunked, gzip', '400 TRANSFER_CODING'],
    ['an empty coding', '1.1', host, '', '400 TRANSFER_CODING'],
    ['a coding that ends alike', '1.1', host, 'xchunked', '400 TRANSFER_CODING'],
    ['another version', '1.9', host, undefined, '505 HTTP_VERSION'],
    ['a hundred fields', '1.1', [...host, ...Array(198).fill('a')], undefined, undefined],
    ['more fields', '2.0', [...host, ...Array(200).fill('a')], 'gzip', '431 HEADER_FIELDS'],
  ])(
    'a head with %s is refused with what is wrong, or not',
    (_, httpVersion, rawHeaders, coding, refusal) => {
      const found = headRefusal({ httpVersion, rawHeaders, headers: { 'transfer-encoding': coding } });
      expect(found && `${found.status} ${found.code}`).toBe(refusal);
    },
  );

  it('a Host that was good before is not looked at again', () => {
    const head = { httpVersion: '1.1', rawHeaders: ['Host', 'a, b'], headers: {} };
    expect([headRefusal(head, 'a, b'), headRefusal(head, 'a')?.code]).toEqual([undefined, 'HOST_MALFORMED']);
  });

  it.each<[string, string, string | undefined, string | undefined]>([
    ['GET', '/a?b', '/a?b', undefined],
    ['GET', '//evil.example/a', '//evil.example/a', undefined],
    ['OPTIONS', '*', '*', undefined],
    ['GET', '*', undefined, undefined],
    ['GET', 'http://a.example/b?c', '/b?c', 'a.example'],
    ['GET', 'HTTPS://a.example:8080', '/', 'a.example:8080'],
    ['GET', 'http://a.example?c', '/?c', 'a.example'],
    ['GET', 'http://user@a.example/', undefined, undefined],
    ['GET', 'http:///a', undefined, undefined],
    ['GET', 'ftp://a.example/', undefined, undefined],
    ['GET', 'xhttp://a.example/', undefined, undefined],
    ['CONNECT', 'a.example:443', undefined, undefined],
  ])('the target of %s %s is %s, for %s', (method, text, target, authority) => {
    expect(requestTarget(method, text)).toEqual(target === undefined ? undefined : { target, authority });
  });

  it.each<[object, boolean]>([
    [{}, false],
    [{ 'content-length': '0' }, false],
    [{ 'content-length': '1' }, true],
    [{ 'content-length': '00' }, true],
    [{ 'transfer-encoding': 'chunked' }, true],
    [{ 'content-length': '0', 'transfer-encoding': 'chunked' }, true],
  ])('the fields %j announce a body: %s', (headers, isAnnounced) => {
    expect(announcesBody(headers)).toBe(isAnnounced);
  });
});
