/**
 * The process has one thread: a text of one caller that takes seconds to read stops all others. So whatever reads a text
 * of a caller or of the upstream takes time in proportion to its length. The same work on a text four times as long is
 * measured side by side, so that the machine's speed does not count. (The search for the key is counted in steps besides:
 * `key/search.test.ts`. Steps of regular expressions cannot be counted.)
 */
import { describe, expect, it } from 'vitest';
import { directiveFields, directiveSeconds, parseCacheControl } from '../src/cache/cache-control.ts';
import { exactRequestKey, repeatsIds, varyNames } from '../src/cache/cache-key.ts';
import { readValidators } from '../src/cache/cache-rules.ts';
import { mayCompress } from '../src/cache/store-response.ts';
import { holdsCredential, presentedCredential, presentedValues } from '../src/callers/credential.ts';
import { parseFlySource } from '../src/callers/fly.ts';
import { claimedOrigin } from '../src/callers/jwt-rule.ts';
import { readRefusedHead, refusalFields } from '../src/edge/access-log.ts';
import { shownLibraryText } from '../src/edge/log-members.ts';
import { chooseCoding, isNotModified } from '../src/edge/representation.ts';
import { headRefusal, requestTarget } from '../src/edge/request-head.ts';
import { readTraceParent, readTraceState } from '../src/edge/request-ids.ts';
import { hostName } from '../src/http/address.ts';
import { parseHttpDate, parseRfc3339 } from '../src/http/date.ts';
import { connectionOptions, type HeaderFields, isJsonType } from '../src/http/fields.ts';
import { findInJson, leadLinksBack, patternFor } from '../src/http/links.ts';
import { statedWait } from '../src/http/stated-wait.ts';
import { Key } from '../src/key/key.ts';
import { Scrubber } from '../src/key/scrub.ts';
import { matchOperations, problemOfQuery } from '../src/operations.ts';
import { codingOf } from '../src/upstream/content-coding.ts';
import { acceptMediaTypes } from '../src/upstream/response.ts';

const longCharacters = 32 * 1_024;
const times = 8;
/** A linear function takes 8 times as long for 8 times the length, a quadratic one 64 times. */
const mostTimesAsLong = 24;
/** A quadratic function makes some 500 million steps of the long text: one that takes less than this needs no second look. */
const promptMs = 4;
const rounds = 3;
/** Others use the processor as well; what is quadratic is so each time. */
const tries = 10;

/** What a long run is made of. */
const runs = [
  '\t',
  ' ',
  'a',
  '0',
  'eyJ',
  '[',
  '%25',
  '%2541',
  '"',
  ',',
  ';',
  ';t=',
  'reset=1,',
  ':00',
  '1m',
  '\\"',
  '=',
  '.',
  '/',
  '@',
  ':',
  '+',
  '\\',
  '&amp;',
  '&#',
  'no-store ',
  'wag_',
  '/json',
  '"a",',
  'q=',
  '%0A[',
];

const scrubber = new Scrubber();
scrubber.know(new Key('wk_test+3f9d/71c2-0123456789abcdef', 1));
const noKey = (text: string): boolean => scrubber.holdsKey(text);
const match = matchOperations([{ name: 'one', path: '/analytics/posts/:id/metrics/:name/', purpose: '' }]);
const accepts = acceptMediaTypes(['application/json', 'application/*+json', '*/*']);
const json = { 'content-type': 'application/json' };
const fields = (name: string, value: string) => ({ [name]: value });
const waitOf = (headers: HeaderFields) => statedWait({ status: 429, headers, receivedAt: 0 });
const noSearch = { isSecret: noKey, rawHeaders: [] };

/** Each reads the text that is put together of what begins it, a run, and what ends it. */
const readers: Readonly<Record<string, (run: string) => unknown>> = {
  'a refused head, a field': (run) =>
    readRefusedHead(Buffer.from(`GET / HTTP/1.1\r\nB d\r\nX: a${run}b\r\n\r\n`, 'latin1'), 0),
  'a refused head, its request line': (run) => readRefusedHead(Buffer.from(`GET /${run}`, 'latin1'), 0),
  'a refused head after good requests': (run) =>
    readRefusedHead(Buffer.from(`${run}\r\n\r\nGET / HTTP/1.1`, 'latin1'), run.length),
  'the path of a refused request': (run) => refusalFields({ peer: undefined, target: `/${run}` }, noSearch),
  'the path of a refused absolute target': (run) =>
    refusalFields({ peer: undefined, target: `http://${run}` }, noSearch),
  'the host of a refused request': (run) => refusalFields({ peer: undefined, host: `${run}x` }, noSearch),
  'the origin of a refused request': (run) =>
    refusalFields({ peer: undefined, origin: `https://${run}` }, noSearch),
  'what a library says': (run) => shownLibraryText(`"${run}`),
  'the credentials of a refused request': (run) =>
    refusalFields({ peer: undefined, target: `/${run}` }, { ...noSearch, rawHeaders: ['cookie', run] }),
  'a request target': (run) => requestTarget('GET', `http://${run}`),
  'a Host': (run) => headRefusal({ httpVersion: '1.1', rawHeaders: ['host', run], headers: {} }),
  'a Transfer-Encoding': (run) =>
    headRefusal({
      httpVersion: '1.1',
      rawHeaders: ['host', 'a'],
      headers: { 'transfer-encoding': `${run}x` },
    }),
  'the name of a host': (run) => hostName(run),
  'a path': (run) => match(`/analytics/posts/${run}/metrics/${run}%`),
  'a query': (run) => problemOfQuery(`${run}%0Ax`),
  'a URL and the credentials of its request': (run) =>
    holdsCredential(run, presentedValues(['Authorization', `Bearer ${run}x`], []), noKey),
  'a URL that is much like the credential of its request': (run) =>
    holdsCredential(run, [`${run.slice(0, 30)}!${run.slice(run.length / 2)}`], noKey),
  'a URL that may hold a credential': (run) => holdsCredential(run, ['c0ffee0123456789abcdef'], noKey),
  'an Authorization field': (run) =>
    presentedCredential(['Authorization', `Bearer ${run}"`], { assertions: [], fly: true }),
  'a JWT': (run) => claimedOrigin(`${run}.${run}.`),
  'a Fly-Src': (run) => parseFlySource(`instance=${run}`),
  'an If-None-Match': (run) =>
    isNotModified(
      200,
      { ifNoneMatch: `"a",${run}x`, ifModifiedSince: undefined },
      { etag: '"b"', lastModified: undefined },
      0,
    ),
  'an If-Modified-Since': (run) => parseHttpDate(`Sun, 06 Nov ${run}`, 0),
  'an Accept-Encoding': (run) => chooseCoding(`gzip${run}x`, { br: true, gzip: true }),
  'a Connection field': (run) => connectionOptions(`${run}x`),
  'a traceparent': (run) =>
    readTraceParent(`01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-${run}\t`),
  'a tracestate': (run) => readTraceState(`a=1,${run}x`),
  'a forwarded field': (run) => exactRequestKey(fields('x-a', `a${run}b`)),
  'a Cache-Control': (run) => parseCacheControl(`max-age=1${run}x`),
  'a quoted argument of Cache-Control': (run) => {
    const directives = parseCacheControl(`private="a${run}b", max-age="${run}1"`);
    return [directiveFields(directives, 'private'), directiveSeconds(directives, 'max-age')];
  },
  'an answer that may repeat an id': (run) =>
    repeatsIds({ body: run, headers: {} }, { 'x-request-id': `${run.slice(0, 127)}x` }, () => true),
  'a Link': (run) => {
    const upstream = new URL('https://a.example/api');
    for (const link of [`<${run}>; rel="${run}"`, `</api/>${run}, <?>`])
      leadLinksBack(link, upstream, { upstream, ours: '/api' });
  },
  'links in JSON': (run) => [...findInJson(`["${run}"]`, patternFor(new URL('https://a.example/api')))],
  'a Vary': (run) => varyNames(`a${run}b`),
  'a Content-Encoding': (run) => codingOf(fields('content-encoding', `${run}x`)),
  'a Content-Type': (run) => [
    isJsonType(`application/${run}+json${run}x`),
    accepts(`application/${run}+json${run}x`),
  ],
  'a Content-Type that may be compressed': (run) =>
    mayCompress({ status: 200, headers: fields('content-type', `text/${run}x`), body: 'a'.repeat(2_000) }),
  'a Cache-Control of what may be compressed': (run) =>
    mayCompress({ status: 200, headers: { ...json, 'cache-control': `a${run}x` }, body: 'a'.repeat(2_000) }),
  'an ETag': (run) => readValidators(fields('etag', `"${run}`)),
  'a Retry-After': (run) => waitOf(fields('retry-after', `${run}x`)),
  'a Retry-After that begins as a number, a duration or a date': (run) =>
    waitOf({ 'retry-after': [`1${run}x`, `1m${run}x`, `2026-11-21T12:00${run}x`] }),
  'a RateLimit': (run) => waitOf(fields('ratelimit', `"a";r=0;${run}x`)),
  'a RateLimit whose strings never close': (run) => waitOf(fields('ratelimit', `"\\"${run}\\`)),
  'a RateLimit with many limits': (run) => waitOf(fields('ratelimit', `limit=1, ${run}, reset=1`)),
  'an X-RateLimit-Reset': (run) =>
    waitOf({ 'x-ratelimit-remaining': `0${run}x`, 'x-ratelimit-reset': `1${run}x` }),
  'a date of the callers file': (run) => parseRfc3339(`2027-01-01T00:00:00${run}Z`),
  'a body that may hold the key': (run) => noKey(run),
  'a text that may hold the key, as a line of the log': (run) => scrubber.redact(run),
};

function runOf(unit: string, characters: number): string {
  // Through a buffer: a string that is made by repetition is put together when it is first read.
  return Buffer.from(
    unit.repeat(Math.ceil(characters / unit.length)).slice(0, characters),
    'latin1',
  ).toString('latin1');
}

function timeMs(read: (run: string) => unknown, run: string, count: number): number {
  const startMs = performance.now();
  for (let done = 0; done < count; done++) read(run);
  return performance.now() - startMs;
}

/** How many times as long the long text takes: the least time of several, taken in turn. */
function growth(read: (run: string) => unknown, short: string, long: string): number {
  const [ofShort, ofLong]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    ofShort.push(timeMs(read, short, times) / times);
    ofLong.push(timeMs(read, long, 1));
  }
  return Math.min(...ofLong) / Math.min(...ofShort);
}

function isLinear(read: (run: string) => unknown, unit: string): boolean {
  const [short, long] = [runOf(unit, longCharacters / times), runOf(unit, longCharacters)];
  if (timeMs(read, long, 1) < promptMs) return true;
  for (let left = tries; left > 0; left--) {
    if (growth(read, short, long) < mostTimesAsLong) return true;
  }
  return false;
}

describe('the time to read a text of a caller or of the upstream grows with its length and not with its square', () => {
  it.each(Object.entries(readers))(
    '%s is read in linear time, whatever it repeats',
    { timeout: 60_000 },
    (_name, read) => {
      expect(runs.find((unit) => !isLinear(read, unit))).toBeUndefined();
    },
  );

  it('the measurement finds an expression that begins again at each blank', { timeout: 60_000 }, () => {
    const [short, long] = [runOf('\t', 512), runOf('\t', 8 * 512)];
    // The greatest: others that use the processor while the short text is read would hide the growth.
    const growths = [1, 2, 3, 4, 5].map(() => growth((run) => /[\t ]+$/.test(`${run}x`), short, long));
    expect(Math.max(...growths)).toBeGreaterThan(mostTimesAsLong);
  });
});
