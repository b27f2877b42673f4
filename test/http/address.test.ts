import { describe, expect, it } from 'vitest';
import { hostName, isHostAllowed, isLoopbackHost, listedHostName } from '../../src/http/address.ts';

describe('the name in a Host field (RFC 9110 section 7.2)', () => {
  it.each([
    ['Gateway.Internal', 'gateway.internal'],
    ['gateway.internal:8080', 'gateway.internal'],
    ['gateway.internal.', 'gateway.internal'],
    ['gateway.internal.:8080', 'gateway.internal'],
    ['my_service:80', 'my_service'],
    ['127.0.0.1:8080', '127.0.0.1'],
    ['[::1]:8080', '[::1]'],
    ['[0:0::1]', '[::1]'],
    ['localhost:', 'localhost'],
    ['', undefined],
    [':8080', undefined],
    ['::1', undefined],
    ['[::1', undefined],
    ['[::1]x', undefined],
    ['x[::1]', undefined],
    ['[zz]', undefined],
    ['[fe80::1%25eth0]', undefined],
    ['a..b', undefined],
    ['localhost..', undefined],
    ['.localhost', undefined],
    ['localhost@evil.example', undefined],
    ['localhost:8080@evil.example', undefined],
    ['localhost/evil', undefined],
    ['localhost evil', undefined],
    ['localhost,evil.example', undefined],
    ['local%68ost', undefined],
    ['localhost:80:80', undefined],
    ['localhost:evil', undefined],
    [`${'a'.repeat(300)}`, undefined],
  ])('the Host %s has its name', (host, name) => {
    expect(hostName(host)).toBe(name);
  });
});

describe('a loopback name', () => {
  it.each([
    'localhost',
    'LOCALHOST.:8080',
    'app.localhost',
    '127.0.0.1:1',
    '127.8.9.1',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
  ])('the name %s means this machine', (host) => {
    expect(isLoopbackHost(hostName(host) ?? '')).toBe(true);
  });

  it.each([
    'localhost.evil.example',
    'notlocalhost',
    '127.0.0.1.evil.example',
    '127.0.0.1.nip.io',
    '0.0.0.0',
    '[::]',
    '127.1',
    '0x7f000001',
    '2130706433',
    '017700000001',
    '10.0.0.1',
    '[::2]',
    '[::127.0.0.1]',
    '[::ffff:10.0.0.1]',
    '[2001:db8::1]',
    '10.0.0.1:8080',
    'evil.example',
    'evil.example.:99999',
  ])('the name %s does not mean this machine', (host) => {
    expect(isLoopbackHost(hostName(host) ?? '')).toBe(false);
  });
});

describe('which hosts are answered', () => {
  const hosts = new Set(
    ['Gateway.Internal:8080', '::1', '10.0.0.1'].map((entry) => listedHostName(entry) ?? ''),
  );

  it('ALLOWED_HOSTS is compared without port and case', () => {
    expect(isHostAllowed('gateway.internal', hosts, true)).toBe(true);
    expect(isHostAllowed('GATEWAY.internal.:99', hosts, false)).toBe(true);
    expect(isHostAllowed('[::1]:8080', hosts, false)).toBe(true);
    expect(isHostAllowed('localhost', hosts, true)).toBe(false);
    expect(isHostAllowed('gateway.internal.evil.example', hosts, false)).toBe(false);
    expect(isHostAllowed(undefined, hosts, false)).toBe(false);
  });

  it.each(['https://a.example', '*.example', 'a b', ''])(
    'the entry %j of ALLOWED_HOSTS has no name',
    (entry) => {
      expect(listedHostName(entry)).toBeUndefined();
    },
  );

  it('without ALLOWED_HOSTS a loopback name is answered where an anonymous caller exists, else any name', () => {
    expect(isHostAllowed('rebound.evil.example', undefined, true)).toBe(false);
    expect(isHostAllowed('localhost:8080', undefined, true)).toBe(true);
    expect(isHostAllowed(undefined, undefined, true)).toBe(false);
    expect(isHostAllowed('anything.at.all:80', undefined, false)).toBe(true);
    expect(isHostAllowed('no name at all', undefined, false)).toBe(false);
    expect(isHostAllowed(undefined, undefined, false)).toBe(false);
  });
});
