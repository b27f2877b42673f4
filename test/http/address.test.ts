import { describe, expect, it } from 'vitest';
import {
  canonicalAddress,
  failureScope,
  hostFromUrl,
  hostInUrl,
  hostName,
  isFlyProxy,
  isHostAllowed,
  isLoopbackAddress,
  isLoopbackHost,
  listedHostName,
  originProblem,
  passedSocket,
  socketPath,
} from '../../src/http/address.ts';

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
    ['a', 'a'],
    ['a'.repeat(260), 'a'.repeat(260)],
    ['', undefined],
    [':8080', undefined],
    ['::1', undefined],
    ['[::1', undefined],
    ['[::1]x', undefined],
    ['x[::1]', undefined],
    ['[zz]', undefined],
    ['[1]', undefined],
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

  it.each(['[::10', '0::1]', 'localhost..'])('the text %s is no name of this machine', (host) => {
    expect(isLoopbackHost('LOCALHOST.')).toBe(true);
    expect(isLoopbackHost(host)).toBe(false);
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

describe('an address', () => {
  it.each([
    ['10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.200.7', '10.0.200.7'],
    ['::FFFF:0a00:1', '10.0.0.1'],
    ['::1:a00:1', '::1:a00:1'],
    ['0:1::ffff:a00:1', '0:1::ffff:a00:1'],
    ['0:0:0:0:0:ffff:10.0.0.1', '10.0.0.1'],
    ['2001:DB8::1', '2001:db8::1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:5:6'],
    ['fe80::1%eth0', 'fe80::1'],
    ['::', '::'],
    ['::10.0.0.1', '::a00:1'],
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    ['2001:db8::1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['nonsense', 'nonsense'],
  ])('the address %s has one spelling (RFC 5952)', (address, expected) => {
    expect(canonicalAddress(address)).toBe(expected);
  });

  it.each([
    ['10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::ffff', '2001:db8:1:2::/64'],
    ['2001:db8:1:3::', '2001:db8:1:3::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    [undefined, 'unix'],
    ['', 'unix'],
  ])('the address %s is counted as %s', (address, scope) => {
    expect(failureScope(address)).toBe(scope);
  });

  it('an address is that of Fly’s proxy only in its own network', () => {
    expect(['172.16.0.1', '::ffff:172.16.9.9'].every(isFlyProxy)).toBe(true);
    expect(['172.160.0.1', '172.17.0.1', '10.172.16.1', '::172.16.0.1', undefined].some(isFlyProxy)).toBe(
      false,
    );
  });

  it('an address is loopback in every spelling, and 0.0.0.0 is not', () => {
    expect(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'].every(isLoopbackAddress)).toBe(true);
    expect(['0.0.0.0', '::', '1270.0.0.1', '128.0.0.1', '::2'].some(isLoopbackAddress)).toBe(false);
  });
});

describe('where to listen and to connect', () => {
  it.each([
    ['::1', '[::1]'],
    ['gateway.internal', 'gateway.internal'],
  ])('the host %s is %s in a URL, and back', (host, inUrl) => {
    expect(hostInUrl(host)).toBe(inUrl);
    expect(hostFromUrl(inUrl)).toBe(host);
  });

  it('only brackets around a host are left out, and a descriptor or a path is told by how it begins', () => {
    expect(hostFromUrl('a[b]c')).toBe('a[b]c');
    expect([passedSocket('fd:3'), passedSocket('3fd:')]).toEqual([3, undefined]);
    expect([socketPath('unix:/a'), socketPath('/a.unix:')]).toEqual(['/a', undefined]);
  });
});

describe('an entry of CORS_ORIGINS', () => {
  it.each([
    ['https://good.example', undefined],
    ['http://localhost:5173', undefined],
    ['https://[::1]:8443', undefined],
    ['*', 'every origin'],
    ['null', 'sandboxed'],
    ['good.example', 'scheme and host'],
    ['https://*.example', 'scheme and host'],
    ['https://good.example/', 'must be written as the browser sends it: https://good.example'],
    ['https://Good.example', 'must be written as the browser sends it: https://good.example'],
    ['https://good.example:443', 'must be written as the browser sends it: https://good.example'],
    ['chrome-extension://abc', 'scheme and host'],
  ])('the entry %s of CORS_ORIGINS is judged before the start', (entry, problem) => {
    if (problem === undefined) expect(originProblem(entry)).toBeUndefined();
    else expect(originProblem(entry)).toContain(problem);
  });
});
