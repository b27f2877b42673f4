import { describe, expect, it, vi } from 'vitest';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import type { Payload } from '../../src/http/payload.ts';
import { type LinkOptions, Links } from '../../src/upstream/links.ts';
import { answerOf as bareAnswer, newTrace, patientContext, requestWith } from '../support/requests.ts';

const answerOf = (status: number, headers: HeaderFields, body: Payload = ''): Answer => ({
  ...bareAnswer(status, headers),
  body,
});
const upstreamRequest = (more: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  ...requestWith(patientContext()),
  ...more,
});

const json = { 'content-type': 'application/json' };
const page = '{"next":"https://analytics.example.com/api/x/?page=2"}';
const led = '{"next":"https://gateway.internal/api/x/?page=2"}';

function linksBefore(answer: (request: UpstreamRequest) => Answer, more: Partial<LinkOptions> = {}) {
  const named: true[] = [];
  const asked: UpstreamRequest[] = [];
  const links = new Links({
    upstream: new URL('https://analytics.example.com/api'),
    path: '/api',
    publicBase: 'https://gateway.internal',
    maxBodyBytes: 2 ** 24,
    onNamed: () => named.push(true),
    ...more,
  });
  const send = links.layer((request) => {
    asked.push(request);
    return answer(request);
  });
  return { links, named, asked, ask: async (request = upstreamRequest()) => send(request, newTrace()) };
}

describe('links in answers', () => {
  it.each([200, 404])(
    'links in JSON of a %i lead to the gateway, and its tag is no longer the upstream’s',
    async (status) => {
      const { ask } = linksBefore(() => answerOf(status, { ...json, etag: 'W/"v1"' }, page));
      const { body, headers } = await ask();
      expect(body).toBe(led);
      expect(headers['etag']).toMatch(/^W\/"v1~[\w-]{6}"$/);
    },
  );

  it.each<[string, string, string]>([
    ['an answer without links', 'application/json', '{"next":null}'],
    ['what is no JSON', 'text/csv', page],
  ])('%s passes as the very same object', async (_what, type, body) => {
    const answer = answerOf(200, { 'content-type': type, etag: '"v1"' }, body);
    expect(await linksBefore(() => answer).ask()).toBe(answer);
  });

  it('the tag of a changed answer goes up as the upstream’s own, and a 304 to it confirms the changed answer', async () => {
    const { ask, asked } = linksBefore((request) =>
      request.validators === undefined
        ? answerOf(200, { ...json, etag: '"v1"' }, page)
        : answerOf(304, { etag: '"v1"' }),
    );
    const etag = String((await ask()).headers['etag']);
    const again = await ask(
      upstreamRequest({ validators: { 'if-none-match': etag, 'if-modified-since': 'x' } }),
    );
    expect(asked[1]?.validators).toEqual({ 'if-none-match': '"v1"', 'if-modified-since': 'x' });
    expect([again.status, again.headers['etag']]).toEqual([304, etag]);
    const plain = await ask(upstreamRequest({ validators: { 'if-none-match': '"v0"' } }));
    expect([asked[2]?.validators, plain.headers['etag']]).toEqual([{ 'if-none-match': '"v0"' }, '"v1"']);
  });

  it('another public address makes another tag', async () => {
    const tags = await Promise.all(
      ['https://one.example', 'https://two.example'].map(async (publicBase) => {
        const { ask } = linksBefore(() => answerOf(200, { ...json, etag: '"v1"' }, page), { publicBase });
        return (await ask()).headers['etag'];
      }),
    );
    expect(tags[0]).not.toBe(tags[1]);
  });

  it('a large answer is changed too, and other work goes on meanwhile', async () => {
    const large = Buffer.from(`[${'"https://analytics.example.com/api/x",'.repeat(60_000)}1]`);
    const { ask } = linksBefore(() => answerOf(200, json, large));
    let turns = 0;
    let isDone = false;
    const count = (): void => {
      turns += 1;
      if (!isDone) setImmediate(count);
    };
    setImmediate(count);
    const joined = vi.spyOn(Buffer, 'concat');
    const { body } = await ask();
    isDone = true;
    // A piece for each slice and not for each link, which may be half a million.
    expect(joined.mock.calls.map(([pieces]) => pieces.length <= 12)).toEqual([true]);
    vi.restoreAllMocks();
    expect(body.toString()).toBe(large.toString().replaceAll('analytics.example.com', 'gateway.internal'));
    expect(turns).toBeGreaterThanOrEqual(5);
  });

  it('an answer that outgrows UPSTREAM_MAX_BODY, because its links become longer, is refused', async () => {
    const body = Buffer.from(JSON.stringify(Array(60_000).fill('https://a.io/')));
    const upstream = new URL('https://a.io/');
    const length = body.length + 60_000 * ('https://gateway.internal/api'.length - 'https://a.io'.length);
    const ask = (maxBodyBytes: number) =>
      linksBefore(() => answerOf(200, json, body), { upstream, maxBodyBytes }).ask();
    expect((await ask(length)).body.length).toBe(length);
    await expect(ask(length - 1)).rejects.toMatchObject({
      code: 'upstream-invalid-response',
      proxyError: 'http_response_body_size',
    });
  });

  it('without a public address JSON passes as it came, and the first answer that names the upstream’s is told of, once', async () => {
    let body = '{}';
    const { ask, named, links } = linksBefore(() => answerOf(200, json, body), { publicBase: undefined });
    await ask();
    expect([named.length, links.snapshot().leadPast]).toEqual([0, false]);
    body = page;
    expect((await ask()).body).toBe(page);
    await ask();
    expect([named.length, links.snapshot().leadPast]).toEqual([1, true]);
  });

  it('Link comes down as a path where no public address is known, and what leads elsewhere is counted', async () => {
    const link = ['<?page=2>; rel=next', '<https://elsewhere.example/>; rel=help'];
    const request = upstreamRequest({ path: '/analytics/accounts/', query: '?page=1' });
    const { ask, links } = linksBefore(() => answerOf(200, { link }), {
      publicBase: undefined,
      path: '/w/a/api',
    });
    expect((await ask(request)).headers).toEqual({ link: '</w/a/api/analytics/accounts/?page=2>; rel=next' });
    expect(links.snapshot().dropped).toBe(1);
    const alone = linksBefore(() => answerOf(200, { link: link[1] as string }));
    expect((await alone.ask(request)).headers).toEqual({});
  });
});
