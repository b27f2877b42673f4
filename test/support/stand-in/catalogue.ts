/**
 * Every misbehaviour by name, for tests that must hold in all of them: no byte of the key gets out, no cut answer
 * passes as a whole one, every request is answered in time.
 */
import type { Behaviour, Misbehaviour } from './behaviour.ts';
import { echoEncodings } from './echo.ts';
import { unsolicitedAnswer } from './misbehave.ts';

export interface Named {
  readonly name: string;
  readonly behaviour: Behaviour;
  /** It ends only when the other side's patience does. */
  readonly stalls: boolean;
}

/** A proxy's or a maintenance page, sent with a status that says all is well. */
const htmlErrorPage: Misbehaviour = {
  status: 200,
  headers: { 'Content-Type': 'text/html; charset=utf-8' },
  body: '<!doctype html><title>Down for maintenance</title><h1>We will be back soon</h1>',
};

const ends = (name: string, behaviour: Behaviour): Named => ({ name, behaviour, stalls: false });
const stalls = (name: string, behaviour: Behaviour): Named => ({ name, behaviour, stalls: true });

/** @param elsewhere an origin of its own, for the redirects that cross origins */
export function everyMisbehaviour(elsewhere: string): Named[] {
  return [
    ...statuses(elsewhere),
    ...delays(),
    ...endings(),
    ...framings(),
    ...bodies(),
    ...protocol(),
    ...keys(),
  ];
}

/** Statuses and redirects. */
function statuses(elsewhere: string): Named[] {
  return [
    ...[201, 204, 206, 300, 304, 400, 401, 403, 404, 410, 418, 429, 500, 502, 503, 504, 599].map((status) =>
      ends(`status ${status}`, { status }),
    ),
    ...[301, 302, 303, 307, 308].map((status) =>
      ends(`redirect ${status}`, { status, redirectTo: `${elsewhere}/api/analytics/accounts/` }),
    ),
    ends('redirect to the same origin', { redirectTo: '/api/users/api-keys/' }),
    ends('redirect without a location', { status: 302 }),
  ];
}

/** Answers that come late, slowly or not at all. */
function delays(): Named[] {
  return [
    ends('late', { latencyMs: 50 }),
    stalls('silent', { stallAt: 'before-headers' }),
    stalls('silent in the header section', { stallAt: 'in-headers' }),
    stalls('silent after the header section', { stallAt: 'after-headers' }),
    stalls('silent in the body', { stallAt: 10 }),
    stalls('dripping', { drip: { everyMs: 50 } }),
    stalls('dripping header section', { drip: { everyMs: 50, headersToo: true } }),
  ];
}

/** Connections that end too early. */
function endings(): Named[] {
  return [
    ends('reset on connecting', { resetAt: 'connection' }),
    ends('reset before the answer', { resetAt: 'before-headers' }),
    ends('reset in the header section', { resetAt: 'in-headers' }),
    ends('reset after the header section', { resetAt: 'after-headers' }),
    ends('reset in the body', { resetAt: 10 }),
    ends('end before the answer', { finAt: 'before-headers' }),
    ends('end in the header section', { finAt: 'in-headers' }),
    ends('end after the header section', { finAt: 'after-headers' }),
    ends('end in the body', { finAt: 10 }),
    ends('end in a chunked body', { framing: 'chunked', finAt: 100 }),
  ];
}

/** Lengths and chunks. */
function framings(): Named[] {
  return [
    ends('length too long, then the end', { claimLength: (bytes) => bytes + 1, finAt: 'end' }),
    stalls('length too long', { claimLength: (bytes) => bytes + 1 }),
    ends('length too short', { claimLength: (bytes) => bytes - 1 }),
    ends('two lengths', { claimLength: (bytes) => [bytes, bytes - 1] }),
    ends('two equal lengths', { claimLength: (bytes) => [bytes, bytes] }),
    ends('negative length', { claimLength: () => -1 }),
    ends('length that is no number', { claimLength: () => '0x10' }),
    ends('length beyond all numbers', { claimLength: () => '99999999999999999999' }),
    ends('chunked', { framing: 'chunked' }),
    ends('chunked with trailers', { framing: 'chunked', trailers: { 'X-Late': 'yes' } }),
    ends('length and chunked', { framing: 'length-and-chunked' }),
    ends('no last chunk', { framing: 'no-last-chunk' }),
    ends('bad chunk size', { framing: 'bad-chunk-size' }),
    ends('body that ends with the connection', { framing: 'until-close' }),
    ends('cut body that ends with the connection', { framing: 'until-close', finAt: 100 }),
  ];
}

/** Bodies, media types and content codings. */
function bodies(): Named[] {
  return [
    ends('empty body', { body: '' }),
    ends('no JSON', { body: '{"accounts": [' }),
    ends('HTML page with 200', htmlErrorPage),
    ends('HTML page with 502', { ...htmlErrorPage, status: 502 }),
    ends('no content type', { headers: { 'Content-Type': undefined } }),
    ends('huge body', { body: { bytes: 16 * 1024 * 1024 } }),
    ends('huge chunked body', { body: { bytes: 16 * 1024 * 1024 }, framing: 'chunked' }),
    ends('huge header section', { headers: { 'X-Filler': 'a'.repeat(128 * 1024) } }),
    ends('many fields', { headers: { 'X-Many': Array.from({ length: 3_000 }, () => 'a') } }),
    ends('gzip', { compress: ['gzip'] }),
    ends('deflate', { compress: ['deflate'] }),
    ends('br', { compress: ['br'] }),
    ends('zstd', { compress: ['zstd'] }),
    ends('chain of codings', { compress: ['gzip', 'gzip', 'br'] }),
    ends('gzip bomb', { compress: ['gzip'], body: { bytes: 16 * 1024 * 1024 } }),
    ends('zstd bomb', { compress: ['zstd'], body: { bytes: 16 * 1024 * 1024 } }),
    ends('coding that is only claimed', { headers: { 'Content-Encoding': 'gzip' } }),
  ];
}

/** Interim answers, fields, and bytes that are no answer. */
function protocol(): Named[] {
  return [
    ends('continue', { interim: [{ status: 100 }] }),
    ends('early hints', { interim: [{ status: 103, headers: { Link: '</x>; rel=preload' } }] }),
    ends('cookies and a server name', {
      headers: { 'Set-Cookie': ['a=1', 'b=2; HttpOnly'], Server: 'origin/1.0' },
    }),
    ends('hop-by-hop fields', { headers: { Connection: 'X-Hop', 'X-Hop': '1', Upgrade: 'h2c' } }),
    ends('public caching', { headers: { 'Cache-Control': 'public, max-age=3600', Vary: '*' } }),
    ends('no HTTP at all', { raw: (socket) => socket.end('SSH-2.0-OpenSSH_9.9\r\n') }),
    ends('field without a name', {
      raw: (socket) => socket.end('HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 2\r\n\r\n[]'),
    }),
    ends('unsolicited answer', { unsolicited: { afterMs: 5 } }),
    ends('two answers at once', { raw: (socket) => socket.write(unsolicitedAnswer.repeat(2)) }),
  ];
}

/** Answers that hold the key that was sent. */
function keys(): Named[] {
  return [
    ...echoEncodings.flatMap((as) => [
      ends(`echo in the body: ${as}`, { echo: { in: 'body', as } }),
      ends(`echo in an error body: ${as}`, { status: 400, echo: { in: 'body', as } }),
      ends(`echo in a field: ${as}`, { echo: { in: 'header', as } }),
      ends(`key in Content-Language: ${as}`, {
        echo: { in: 'header', of: 'key', field: 'Content-Language', as },
      }),
    ]),
    ends('key in the reason phrase', { echo: { in: 'reason', of: 'key' } }),
    ends('key in Retry-After', { status: 429, echo: { in: 'header', of: 'key', field: 'Retry-After' } }),
    ends('key in Location', { status: 302, echo: { in: 'header', of: 'key', field: 'Location' } }),
    ends('key in a gzip body', { echo: { in: 'body' }, compress: ['gzip'] }),
    ends('key in early hints', (request) => ({
      interim: [{ status: 103, headers: { 'X-Echo': request.key ?? '' } }],
    })),
    ends('key in a trailer', (request) => ({
      framing: 'chunked',
      trailers: { 'X-Echo': request.key ?? '' },
    })),
    ends('key in a field name', (request) => ({
      headers: { [`x-${(request.key ?? '').replace(/[^!#$%&'*+.^_`|~0-9A-Za-z-]/g, '')}`]: '1' },
    })),
  ];
}
