import { describe, expect, it } from 'vitest';
import { type Asked, isAdminHost, isOthersPage } from '../../src/admin/middleware.ts';

describe('the admin listener, against DNS rebinding,', () => {
  const local = { listensOn: '127.0.0.1', isLocal: true, allowed: ['gateway.example.com'] };
  const open = { listensOn: '0.0.0.0', isLocal: false, allowed: ['gateway.example.com'] };
  const named = { listensOn: 'box.corp.example', isLocal: false, allowed: undefined };

  it.each<[host: string | undefined, onLoopback: boolean, elsewhere: boolean]>([
    ['127.0.0.1:9091', true, true],
    ['localhost', true, true],
    ['console.localhost:9091', true, true],
    ['[::1]:9091', true, true],
    ['10.0.0.5:9091', false, true],
    ['[fd00::5]:9091', false, true],
    ['gateway:9091', false, true],
    ['gateway.internal', false, true],
    ['d890.vm.gateway.internal:9091', false, true],
    ['gateway.example.com:9091', false, true],
    ['evil.example', false, false],
    ['127.0.0.1.evil.example', false, false],
    ['10.0.0.5.nip.io', false, false],
    ['localhost.evil.example', false, false],
    ['internal.evil.example', false, false],
    ['evilinternal.example', false, false],
    ['1.2.3', false, false],
    ['', false, false],
    ['a b', false, false],
    [undefined, false, false],
  ])('%s: on loopback %s, elsewhere %s', (host, onLoopback, elsewhere) => {
    expect(isAdminHost(host, local)).toBe(onLoopback);
    expect(isAdminHost(host, open)).toBe(elsewhere);
  });

  it('the admin listener answers for the name in ADMIN_HOST', () => {
    expect(isAdminHost('box.corp.example:9091', named)).toBe(true);
    expect(isAdminHost('other.corp.example:9091', named)).toBe(false);
  });

  it('the admin listener answers for localhost on a Unix socket', () => {
    const socket = { listensOn: 'unix:/run/admin.sock', isLocal: true, allowed: undefined };
    expect(isAdminHost('localhost', socket)).toBe(true);
    expect(isAdminHost('evil.example', socket)).toBe(false);
  });
});

describe('pages of other sites', () => {
  const host = '127.0.0.1:9091';
  const script: Asked = {
    method: 'POST',
    path: '/cache/purge',
    host,
    origin: undefined,
    site: undefined,
    mode: undefined,
    dest: undefined,
  };
  it.each<[name: string, asked: Partial<Asked>, isOthers: boolean]>([
    ['a script', {}, false],
    ['the console', { site: 'same-origin', origin: `http://${host}`, mode: 'cors', dest: 'empty' }, false],
    ['the console in an older browser', { origin: `http://${host}` }, false],
    ['another site', { site: 'cross-site', origin: 'https://evil.example' }, true],
    ['another port of this machine', { site: 'same-site', origin: 'http://127.0.0.1:8080' }, true],
    ['another site in an older browser', { origin: 'https://evil.example' }, true],
    ['a sandboxed frame', { origin: 'null' }, true],
    ['a form that hides its origin', { site: 'cross-site', mode: 'navigate', dest: 'document' }, true],
    [
      'a typed address',
      { method: 'GET', path: '/', site: 'none', mode: 'navigate', dest: 'document' },
      false,
    ],
    [
      'a link to the console',
      { method: 'GET', path: '/', site: 'cross-site', mode: 'navigate', dest: 'document' },
      false,
    ],
    [
      'a frame around the console',
      { method: 'GET', path: '/', site: 'cross-site', mode: 'navigate', dest: 'iframe' },
      true,
    ],
    [
      'an image of the status',
      { method: 'GET', path: '/status', site: 'cross-site', mode: 'no-cors', dest: 'image' },
      true,
    ],
    [
      'a link to the status',
      { method: 'GET', path: '/status', site: 'cross-site', mode: 'navigate', dest: 'document' },
      true,
    ],
    [
      'a form to the console',
      { path: '/', site: 'cross-site', origin: 'null', mode: 'navigate', dest: 'document' },
      true,
    ],
  ])('%s', (_name, asked, isOthers) => {
    expect(isOthersPage({ ...script, ...asked })).toBe(isOthers);
  });
});
