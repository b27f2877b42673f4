import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { HeaderFields } from '../../src/http/fields.ts';
import { statedWait } from '../../src/http/stated-wait.ts';

const receivedAt = Date.parse('Sat, 21 Nov 2026 12:00:00 GMT');
const epoch = receivedAt / 1_000;
const daysMs = 86_400_000;

const stated = (headers: HeaderFields, status = 429, added: readonly string[] = []) =>
  statedWait({ status, headers, receivedAt }, added);
const waitOf = (headers: HeaderFields, status?: number): number | undefined => stated(headers, status).waitMs;

describe('the wait that the upstream states', () => {
  it.each<[string, string, number | undefined]>([
    ['seconds', '7', 7_000],
    ['zero', '0', 0],
    ['blanks around', ' 7 ', 7_000],
    ['decimals', '1.5', 1_500],
    ['decimals that are none', '2.0', 2_000],
    ['an IMF-fixdate', 'Sat, 21 Nov 2026 12:00:05 GMT', 5_000],
    ['a date by RFC 850', 'Saturday, 21-Nov-26 12:00:05 GMT', 5_000],
    ['a date by asctime, which has no zone', 'Sat Nov 21 12:00:05 2026', 5_000],
    ['ISO 8601', '2026-11-21T12:00:05Z', 5_000],
    ['ISO 8601 without seconds', '2026-11-21T12:05Z', 300_000],
    ['ISO 8601 without a zone: UTC', '2026-11-21T12:00:05', 5_000],
    ['ISO 8601 without both, with a blank', '2026-11-21 12:05', 300_000],
    ['ISO 8601 in another zone', '2026-11-21T13:00:05.250+01:00', 5_250],
    ['an epoch in seconds', `${epoch + 12}`, 12_000],
    ['an epoch in seconds with decimals', `${epoch + 12}.5`, 12_500],
    ['an epoch in ms', `${receivedAt + 12_345}`, 12_345],
    ['a duration', '1m30s', 90_000],
    ['a duration in ms', '6ms', 6],
    ['a duration with decimals', '2m59.56s', 179_560],
    ['a duration of days and hours', '1d2h', 26 * 3_600_000],
    ['exactly 31 days', `${31 * 86_400}`, 31 * daysMs],
    ['31 days as an epoch in ms', `${receivedAt + 31 * daysMs}`, 31 * daysMs],
  ])('Retry-After (RFC 9110 section 10.2.3) is read in each spelling: %s', (_, text, expected) => {
    expect(stated({ 'retry-after': text })).toEqual({ waitMs: expected, unreadable: [] });
  });

  it.each([
    ['a date', 'Sat, 21 Nov 2026 11:00:00 GMT'],
    ['a two-digit year of the last century', 'Saturday, 21-Nov-99 12:00:05 GMT'],
    ['ISO 8601', '2026-11-21T11:59Z'],
    ['an epoch in seconds', `${epoch - 1}`],
    ['the first number that is an epoch', '1000000000'],
    ['an epoch in ms', `${receivedAt - 1}`],
    ['the first number that is an epoch in ms', '100000000000'],
    ['a negative number', '-5'],
  ])('what lies in the past is no wait: %s', (_, text) => {
    expect(stated({ 'retry-after': text })).toEqual({ waitMs: undefined, unreadable: [] });
  });

  it.each([
    ['words', 'soon'],
    ['an empty field', ''],
    ['an exponent', '1e309'],
    ['a decimal comma', '1,5'],
    ['a number with a unit that is none', '5 seconds'],
    ['a duration without an amount', 'ms'],
    ['no date after a weekday', 'Sat, someday'],
    ['a day that November does not have', '2026-11-31T12:00:00Z'],
    ['more than 31 days in seconds', `${31 * 86_400 + 1}`],
    ['the last number that is no epoch', '999999999'],
    ['more than 31 days as an epoch in ms', `${receivedAt + 31 * daysMs + 1}`],
    ['the year 9999', 'Fri, 31 Dec 9999 23:59:59 GMT'],
    ['more digits than a number holds', '9'.repeat(400)],
    ['many digits', '9'.repeat(64)],
  ])('what is malformed, or no wait that an upstream can mean, is none and is named: %s', (_, text) => {
    expect(stated({ 'retry-after': text })).toEqual({ waitMs: undefined, unreadable: ['retry-after'] });
    const beside = stated({ 'retry-after': text, 'ratelimit-remaining': '0', 'ratelimit-reset': '30' });
    expect(beside).toEqual({ waitMs: 30_000, unreadable: ['retry-after'] });
  });

  it("a date is measured against the answer's own", () => {
    const date = 'Sat, 21 Nov 2026 13:00:00 GMT';
    expect(waitOf({ 'retry-after': 'Sat, 21 Nov 2026 13:00:05 GMT', date })).toBe(5_000);
    expect(waitOf({ 'retry-after': `${epoch + 3_605}`, date })).toBe(5_000);
    expect(waitOf({ 'retry-after': '2026-11-21T13:00:05', date: 'never' })).toBe(3_605_000);
  });

  it.each<[string, HeaderFields, number | undefined]>([
    ['retry-after-ms', { 'retry-after-ms': '250' }, 250],
    ['x-ms-retry-after-ms', { 'x-ms-retry-after-ms': '1.2' }, 1],
    ['an epoch in a field of ms', { 'retry-after-ms': `${receivedAt + 250}` }, 250],
    ['lines that differ', { 'retry-after': ['3', '9', 'Sat, 21 Nov 2026 12:00:05 GMT'] }, 9_000],
    ['fields that differ', { 'retry-after': '1', 'retry-after-ms': '640' }, 1_000],
    ['fields that differ, the other way round', { 'retry-after': '1', 'retry-after-ms': '1640' }, 1_640],
    ['a Retry-After before the reset', { 'retry-after': '2', ratelimit: '"a";r=0;t=30' }, 30_000],
    ['a Retry-After after the reset', { 'retry-after': '40', ratelimit: '"a";r=0;t=30' }, 40_000],
    ['a Retry-After in the past', { 'retry-after': '-1', ratelimit: '"a";r=0;t=30' }, 30_000],
    ['no wait and a wait', { 'retry-after': '0', 'retry-after-ms': '5' }, 5],
  ])('what contradicts itself takes the longer: %s', (_, headers, expected) => {
    expect(stated(headers)).toEqual({ waitMs: expected, unreadable: [] });
  });

  it.each<[string, string | string[], number | undefined, number | undefined]>([
    ['draft 7: combined', 'limit=100, remaining=0, reset=30', 30_000, 30_000],
    ['draft 7 in another order', 'reset=30,remaining=0,limit=100', 30_000, 30_000],
    ['draft 7: something is left', 'limit=100, remaining=1, reset=30', undefined, undefined],
    [
      'draft 7: two limits in one field',
      'remaining=0, reset=7, limit=5, remaining=3, reset=90',
      7_000,
      7_000,
    ],
    ['draft 7: nothing is said of what is left', 'limit=10, reset=1', 1_000, undefined],
    ['drafts 8 to 10', '"p";r=0;t=30', 30_000, 30_000],
    ['drafts 8 to 10: something is left', '"p";r=3;t=30', undefined, undefined],
    ['drafts 8 to 10: one of two is used up', '"burst";r=5;t=90, "daily"; r=0; t=60', 60_000, 60_000],
    ['drafts 8 to 10: the longer of two', '"burst";r=0;t=3, "daily";r=0;t=60', 60_000, 60_000],
    ['drafts 8 to 10: on two lines', ['"burst";r=0;t=3', '"daily";r=0;t=60'], 60_000, 60_000],
    ['drafts 8 to 10: other parameters', '"p";pk=:YT1iPQ==:;t=30;q=5;r=0', 30_000, 30_000],
    ['drafts 8 to 10: a name as a token', 'quota;t=1', 1_000, undefined],
    ['drafts 8 to 10: no time', '"p";r=0', undefined, undefined],
    ['a name that looks like limits', String.raw`"a\"b;r=0;t=99,\\";r=0;t=30`, 30_000, 30_000],
    ['what is left is malformed: as if it were not said', '"p";r=zero;t=30', 30_000, undefined],
    ['capitals', 'Limit=100, Remaining=0, Reset=30', 30_000, 30_000],
  ])('RateLimit is read as its drafts wrote it: %s', (_, ratelimit, on429, on503) => {
    expect(stated({ ratelimit }, 429)).toEqual({ waitMs: on429, unreadable: [] });
    expect(stated({ ratelimit }, 503)).toEqual({ waitMs: on503, unreadable: [] });
  });

  it.each([['100'], ['"p"'], ['"p;r=0;t=30'], ['"p";r=0;t=soon'], ['remaining=0, reset=4e9'], [', ,']])(
    'a RateLimit that cannot be read is none and is named: %j',
    (ratelimit) => {
      expect(stated({ ratelimit })).toEqual({ waitMs: undefined, unreadable: ['ratelimit'] });
    },
  );

  it.each([
    ['ratelimit-reset', 'ratelimit-remaining'],
    ['x-ratelimit-reset', 'x-ratelimit-remaining'],
    ['x-ratelimit-reset-after', 'x-ratelimit-remaining'],
    ['x-rate-limit-reset', 'x-rate-limit-remaining'],
    ['x-ratelimit-reset-requests', 'x-ratelimit-remaining-requests'],
    ['acme-tokens-reset', 'acme-tokens-remaining'],
    ['ratelimit-resettime', 'ratelimit-remaining'],
    ['x-reset-attempts', 'x-remaining-attempts'],
  ])('%s counts where nothing is left of its own limit', (reset, remaining) => {
    const waits = (left: HeaderFields, status = 429) =>
      stated({ [reset]: '12', 'retry-after': '1', ...left }, status, [reset]).waitMs;
    expect(waits({ [remaining]: '0' })).toBe(12_000);
    expect(waits({ [remaining]: '0' }, 503)).toBe(12_000);
    expect(waits({ [remaining]: '0.0' })).toBe(12_000);
    expect(waits({ [remaining]: '0;w=21600' })).toBe(12_000);
    expect(waits({ [remaining]: ['4', '0'] })).toBe(12_000);
    expect(waits({ [remaining]: '1' })).toBe(1_000);
    expect(waits({ [remaining]: '76;w=21600' })).toBe(1_000);
    // Where nothing is said of what is left, a 429 says it, and a 5xx does not.
    expect(waits({})).toBe(12_000);
    expect(waits({}, 503)).toBe(1_000);
    expect(waits({ [remaining]: '-1' })).toBe(12_000);
    expect(waits({ [remaining]: '-1' }, 503)).toBe(1_000);
  });

  it('a reset that does not count is not read, and a field that is not known says nothing', () => {
    const headers = { 'ratelimit-remaining': '3', 'ratelimit-reset': 'soon', 'x-wait': '9' };
    expect(stated(headers)).toEqual({ waitMs: undefined, unreadable: [] });
    expect(stated(headers, 429, ['x-wait'])).toEqual({ waitMs: 9_000, unreadable: [] });
    expect(stated(headers, 503, ['x-wait'])).toEqual({ waitMs: 9_000, unreadable: [] });
    const known = { ratelimit: '"p";r=0;t=30', 'retry-after': '7' };
    expect(stated(known, 429, ['ratelimit', 'retry-after'])).toEqual({ waitMs: 30_000, unreadable: [] });
    expect(stated({}, 429, ['constructor', '__proto__'])).toEqual({ waitMs: undefined, unreadable: [] });
  });

  it.each([200, 304, 401, 403, 404])('a %i asks for no wait', (status) => {
    const headers = { 'retry-after': '7', ratelimit: '"p";r=0;t=30', 'x-ratelimit-reset': 'soon' };
    expect(stated(headers, status)).toEqual({ waitMs: undefined, unreadable: [] });
  });
});

/** An answer with the fields of its source. Where the source shows a form without figures, these are ours. */
interface RealAnswer {
  readonly api: string;
  readonly source: string;
  readonly headers: HeaderFields;
  /** When it was received, where it has no `Date`. */
  readonly at?: string;
  /** UPSTREAM_LIMIT_HEADERS for this upstream. */
  readonly added?: readonly string[];
  readonly waitMs: number | undefined;
  readonly unreadable?: readonly string[];
}

const realAnswers: readonly RealAnswer[] = [
  {
    api: 'GitHub, its primary limit',
    source: 'https://docs.github.com/en/enterprise-server@3.14/rest/overview/troubleshooting',
    headers: { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1700003600' },
    at: '2023-11-14T22:53:20Z',
    waitMs: 1_200_000,
  },
  {
    api: 'GitHub, its secondary limit',
    source: 'https://docs.github.com/en/enterprise-server@3.14/rest/overview/troubleshooting',
    headers: { 'retry-after': '60', 'x-ratelimit-remaining': '4999', 'x-ratelimit-reset': '1700003600' },
    at: '2023-11-14T22:53:20Z',
    waitMs: 60_000,
  },
  {
    api: 'GitLab, which counts something else',
    source: 'https://gitlab.com/gitlab-org/gitlab/-/issues/199738',
    headers: {
      date: 'Thu, 30 Jan 2020 14:14:16 GMT',
      'ratelimit-limit': '600',
      'ratelimit-observed': '5',
      'ratelimit-remaining': '595',
      'ratelimit-reset': '1580393717',
      'ratelimit-resettime': 'Thu, 30 Jan 2020 14:15:17 GMT',
    },
    waitMs: undefined,
  },
  {
    api: 'GitLab, with its second field',
    source: 'https://gitlab.com/gitlab-org/gitlab/-/issues/217312',
    headers: {
      'ratelimit-limit': '600',
      'ratelimit-remaining': '0',
      'ratelimit-reset': '1563325137',
      'ratelimit-resettime': 'Wed, 17 Jul 2019 00:58:57 GMT',
    },
    at: '2019-07-17T00:58:00Z',
    added: ['ratelimit-resettime'],
    waitMs: 57_000,
  },
  {
    api: 'Syntage',
    source: 'https://docs.syntage.com/guides/api/rate-limiting',
    headers: {
      date: 'Sun, 29 Nov 2020 19:21:21 GMT',
      'x-ratelimit-limit': '60',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '1606678044',
    },
    waitMs: 363_000,
  },
  {
    api: 'Smartsheet',
    source:
      'https://developers.smartsheet.com/api/resource_management/getting-started/throttling-and-rate-limiting.md',
    headers: { 'x-ratelimit-limit': '120', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1482966442' },
    at: '2016-12-28T23:07:00Z',
    waitMs: 22_000,
  },
  {
    api: 'GitBook',
    source: 'https://gitbook.com/docs/developers/gitbook-api/rate-limiting',
    headers: { 'x-ratelimit-limit': '60', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1377013266' },
    at: '2013-08-20T15:40:06Z',
    waitMs: 60_000,
  },
  {
    api: 'Okta',
    source: 'https://developer.okta.com/docs/reference/rl-best-practices/',
    headers: {
      date: 'Thu, 31 Dec 2020 23:59:30 GMT',
      'x-rate-limit-limit': '1200',
      'x-rate-limit-remaining': '0',
      'x-rate-limit-reset': '1609459200',
    },
    waitMs: 30_000,
  },
  {
    api: 'X',
    source: 'https://github.com/xdevplatform/twitter-api-typescript-sdk/issues/68',
    headers: {
      'x-rate-limit-limit': '15',
      'x-rate-limit-remaining': '0',
      'x-rate-limit-reset': '1700000900',
    },
    at: '2023-11-14T22:13:20Z',
    waitMs: 900_000,
  },
  {
    api: 'X, which refuses although something is left',
    source: 'https://github.com/elizaOS/agent-twitter-client/issues/68',
    headers: { 'x-rate-limit-remaining': '800', 'x-rate-limit-reset': '1738179790' },
    at: '2025-01-29T19:28:10Z',
    waitMs: undefined,
  },
  {
    api: 'Discord',
    source: 'https://docs.discord.com/developers/topics/rate-limits',
    headers: {
      'retry-after': '65',
      'x-ratelimit-limit': '10',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '1470173023.123',
      'x-ratelimit-reset-after': '64.57',
    },
    at: '2016-08-02T21:22:38.553Z',
    waitMs: 65_000,
  },
  {
    api: 'Shopify',
    source: 'https://github.com/MONEI/Shopify-api-node/issues/135',
    headers: { 'retry-after': '2.0', 'x-shopify-shop-api-call-limit': '40/40' },
    waitMs: 2_000,
  },
  {
    api: 'Reddit',
    source: 'https://github.com/reddit-archive/reddit/issues/1458',
    headers: { 'x-ratelimit-used': '300', 'x-ratelimit-remaining': '0.0', 'x-ratelimit-reset': '502' },
    waitMs: 502_000,
  },
  {
    api: 'OpenAI',
    source: 'https://thoughtbot.com/blog/openai-rate-limits',
    headers: {
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-remaining-tokens': '0',
      'x-ratelimit-reset-requests': '1s',
      'x-ratelimit-reset-tokens': '6m0s',
    },
    added: ['x-ratelimit-reset-requests', 'x-ratelimit-reset-tokens'],
    waitMs: 360_000,
  },
  {
    api: 'OpenAI, with one limit used up',
    source: 'https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905',
    headers: {
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-remaining-tokens': '159976',
      'x-ratelimit-reset-requests': '12ms',
      'x-ratelimit-reset-tokens': '9ms',
    },
    added: ['x-ratelimit-reset-requests', 'x-ratelimit-reset-tokens'],
    waitMs: 12,
  },
  {
    api: 'Groq',
    source: 'https://console.groq.com/docs/rate-limits',
    headers: {
      'retry-after': '2',
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-remaining-tokens': '17997',
      'x-ratelimit-reset-requests': '2m59.56s',
      'x-ratelimit-reset-tokens': '7.66s',
    },
    added: ['x-ratelimit-reset-requests', 'x-ratelimit-reset-tokens'],
    waitMs: 179_560,
  },
  {
    api: 'Anthropic',
    source: 'https://github.com/anthropics/anthropic-sdk-typescript/issues/357',
    headers: {
      date: 'Tue, 26 Mar 2024 19:59:59 GMT',
      'anthropic-ratelimit-requests-remaining': '0',
      'anthropic-ratelimit-requests-reset': '2024-03-26T20:00:00Z',
      'anthropic-ratelimit-tokens-remaining': '16000',
      'anthropic-ratelimit-tokens-reset': '2024-03-26T20:10:00Z',
    },
    added: ['anthropic-ratelimit-requests-reset', 'anthropic-ratelimit-tokens-reset'],
    waitMs: 1_000,
  },
  {
    api: 'Azure Cosmos DB',
    source: 'https://www.github.com/jbmusso/gremlin-javascript/issues/113',
    headers: { 'x-ms-retry-after-ms': '9' },
    waitMs: 9,
  },
  {
    api: 'Azure OpenAI',
    source: 'https://github.com/simonkurtz-MSFT/python-openai-loadbalancer/issues/14',
    headers: { 'retry-after': '1', 'retry-after-ms': '640' },
    waitMs: 1_000,
  },
  {
    api: 'Azure OpenAI, which knows neither',
    source: 'https://learn.microsoft.com/en-us/answers/questions/5625878/',
    headers: { 'x-ratelimit-remaining-tokens': '-1', 'x-ratelimit-reset-tokens': '0' },
    added: ['x-ratelimit-reset-tokens'],
    waitMs: 0,
  },
  {
    api: 'Jira',
    source: 'https://jira.atlassian.com/browse/JRACLOUD-69262',
    headers: { 'retry-after': '75', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2026-11-21T12:01Z' },
    waitMs: 75_000,
  },
  {
    api: 'Linear',
    source: 'https://github.com/mre/rate-limits/issues/8',
    headers: {
      'x-ratelimit-complexity-remaining': '2999940',
      'x-ratelimit-complexity-reset': '1694721826678',
      'x-ratelimit-requests-remaining': '0',
      'x-ratelimit-requests-reset': '1694721826678',
    },
    at: '2023-09-14T20:03:00Z',
    added: ['x-ratelimit-requests-reset', 'x-ratelimit-complexity-reset'],
    waitMs: 46_678,
  },
  {
    api: 'Cloudflare',
    source: 'https://developers.cloudflare.com/fundamentals/api/reference/limits',
    headers: {
      ratelimit: '"default";r=0;t=30',
      'ratelimit-policy': '"default";q=1200;w=300',
      'retry-after': '30',
    },
    waitMs: 30_000,
  },
  {
    api: 'Docker Hub, which does not say until when',
    source: 'https://hub.docker.com/r/fabianonunes/hub-ratelimit',
    headers: { 'ratelimit-limit': '100;w=21600', 'ratelimit-remaining': '0;w=21600' },
    waitMs: undefined,
  },
  {
    api: 'Rachio',
    source: 'https://rachio.readme.io/reference/rate-limiting',
    headers: {
      'x-ratelimit-limit': '3500',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '2025-01-03T00:00:00Z',
    },
    at: '2025-01-02T23:00:00Z',
    waitMs: 3_600_000,
  },
  {
    api: 'MailerLite',
    source: 'https://developers-classic.mailerlite.com/docs/api-rate-limits',
    headers: {
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '2026-11-21 12:00:42',
      'x-ratelimit-retry-after': '42',
    },
    added: ['x-ratelimit-retry-after'],
    waitMs: 42_000,
  },
  {
    api: 'lemlist, whose date is for people',
    source: 'https://developer.lemlist.com/api-reference/getting-started/rate-limits',
    headers: {
      'retry-after': '2',
      'x-ratelimit-limit': '20',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': 'Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)',
    },
    at: '2021-02-16T08:02:40Z',
    waitMs: 2_000,
    unreadable: ['x-ratelimit-reset'],
  },
  {
    api: 'WHOOP',
    source: 'https://developer.whoop.com/docs/developing/rate-limiting',
    headers: {
      'x-ratelimit-limit': '100, 100;window=60, 10000;window=86400',
      'x-ratelimit-remaining': '0',
      'x-ratelimit-reset': '3',
    },
    waitMs: 3_000,
  },
  {
    api: 'Persona',
    source: 'https://docs.withpersona.com/v2021-07-05/reference/rate-limiting',
    headers: { 'ratelimit-limit': '300', 'ratelimit-remaining': '0', 'ratelimit-reset': '53' },
    waitMs: 53_000,
  },
  {
    api: 'Gorgias',
    source: 'https://developers.gorgias.com/reference/limitations-1',
    headers: { 'retry-after': '5', 'x-gorgias-account-api-call-limit': '40/40' },
    waitMs: 5_000,
  },
  {
    // Nothing in the field says that these are ms: no reader can know.
    api: 'Prisjakt, whose ms are taken for seconds',
    source: 'https://developer.prisjakt.nu/docs/sections/rate-limit',
    headers: {
      'x-rate-limit-limit': '10000',
      'x-rate-limit-remaining': '0',
      'x-rate-limit-reset': '600000',
    },
    waitMs: 600_000_000,
  },
];

describe('the 429 of a public API', () => {
  it.each(realAnswers)('states its wait: $api', ({ headers, at, added = [], waitMs, unreadable = [] }) => {
    const received = { status: 429, headers, receivedAt: at === undefined ? receivedAt : Date.parse(at) };
    expect(statedWait(received, added)).toEqual({ waitMs, unreadable });
  });

  it('comes from at least twenty of them, each with its source', () => {
    expect(new Set(realAnswers.map(({ api }) => api.split(',')[0])).size).toBeGreaterThanOrEqual(20);
    expect(realAnswers.filter(({ source }) => URL.parse(source)?.protocol !== 'https:')).toEqual([]);
  });
});

describe('whatever the upstream writes', () => {
  /** Texts that are put together of what spellings are made of, and any other. */
  const piece = fc.oneof(
    fc.constantFrom(
      ...[...'0159.-+:;,="\\ TZrtdhms'],
      'ms',
      'limit=',
      'remaining=',
      'reset=',
      'GMT',
      '2026-',
    ),
    fc.constantFrom(
      'Sat, 21 Nov ',
      ' 12:00:05',
      'T12:00',
      ';r=0',
      ';t=',
      '1e',
      'Infinity',
      'NaN',
      '__proto__=',
    ),
    fc.nat().map(String),
  );
  const text = fc.oneof(
    fc.string(),
    fc.array(piece, { maxLength: 12 }).map((parts) => parts.join('')),
  );
  const field = fc.oneof(text, fc.array(text, { maxLength: 3 }));
  const names = [
    ...['retry-after', 'retry-after-ms', 'x-ms-retry-after-ms', 'ratelimit', 'ratelimit-reset', 'date'],
    ...[
      'ratelimit-remaining',
      'x-ratelimit-reset',
      'x-ratelimit-reset-after',
      'x-rate-limit-reset',
      'x-added',
    ],
  ];

  it('a wait is never negative, never more than 31 days, and reading it never throws', () => {
    const answers = fc.record({
      status: fc.constantFrom(429, 503),
      headers: fc.dictionary(fc.constantFrom(...names), field),
      receivedAt: fc.nat({ max: 2 ** 42 }),
    });
    fc.assert(
      fc.property(answers, (answer) => {
        const { waitMs, unreadable } = statedWait(answer, ['x-added']);
        if (waitMs !== undefined) {
          expect(Number.isInteger(waitMs)).toBe(true);
          expect(waitMs).toBeGreaterThanOrEqual(0);
          expect(waitMs).toBeLessThanOrEqual(31 * daysMs);
        }
        expect(names).toEqual(expect.arrayContaining([...unreadable]));
      }),
      { numRuns: 2_000 },
    );
  });
});
