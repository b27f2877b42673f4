/**
 * What the operations of the API document share: the fields of requests and responses, and the responses themselves. Pure:
 * no `this`, no I/O, no clock.
 */
import { type ProblemCode, problems } from '../errors.ts';
import { type Documented, documentedFields } from '../http/header-table.ts';
import { viaName } from '../version.ts';

export interface CacheRequest {
  /** The request fields as they are sent. */
  readonly fields: readonly string[];
  readonly meaning: string;
}

/** What a caller may ask of the cache, in words. The API document and docs/caching.md have the same table. */
export const cacheDirectives: readonly CacheRequest[] = [
  {
    fields: ['Cache-Control: no-cache', 'max-age=0'],
    meaning: 'asks the upstream, unless an answer was fetched less than 500 ms ago',
  },
  { fields: ['Cache-Control: max-age=N'], meaning: 'an answer at most N seconds old' },
  { fields: ['Cache-Control: min-fresh=N'], meaning: 'an answer that stays fresh for N more seconds' },
  {
    fields: ['Cache-Control: max-stale', 'max-stale=N'],
    meaning: 'a stale answer is fine, by any time or by N seconds',
  },
  { fields: ['Cache-Control: only-if-cached'], meaning: 'from memory, or 504 `not-in-cache`' },
  {
    fields: ['Cache-Control: no-store'],
    meaning: 'what is fetched for this request alone is not kept',
  },
];

export const validators: CacheRequest = {
  fields: ['If-None-Match', 'If-Modified-Since'],
  meaning: '304 where your copy still holds',
};

export interface Field {
  /** As it is written in a message. */
  readonly name: string;
  readonly meaning: string;
  readonly example: string;
}

/** Request fields besides those of authentication. All may be left out. */
export const requestFields = {
  CacheControl: {
    name: 'Cache-Control',
    meaning: `What the answer from the cache may be (RFC 9111 section 5.2.1). ${cacheDirectives
      .map(({ fields, meaning }) => `${coded(fields)}: ${meaning}.`)
      .join(' ')}`.replaceAll('Cache-Control: ', ''),
    example: 'max-age=5',
  },
  IfNoneMatch: {
    name: 'If-None-Match',
    meaning: `The ETag of your copy: ${validators.meaning} (RFC 9110 section 13.1.2).`,
    example: '"gTq4pVKEZ0oF0wGDJVpyzA"',
  },
  IfModifiedSince: {
    name: 'If-Modified-Since',
    meaning: `The Last-Modified of your copy: ${validators.meaning} (RFC 9110 section 13.1.3).`,
    example: 'Sun, 01 Nov 2026 12:00:00 GMT',
  },
  Prefer: {
    name: 'Prefer',
    meaning:
      '`wait=5`: how many seconds you will wait at most (RFC 7240 section 4.3). It shortens how long the request may take and never lengthens it.',
    example: 'wait=5',
  },
  RequestId: {
    name: 'X-Request-ID',
    meaning:
      'An id of your own for this request: it goes to the upstream, comes back, and stands in the log of the gateway. Up to 128 letters, digits and `. _ ~ : + / = -`; in place of any other the gateway makes one.',
    example: 'report-2026-11-01',
  },
  TraceParent: {
    name: 'traceparent',
    meaning: 'W3C Trace Context. It goes to the upstream where it is valid.',
    example: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  },
  TraceState: {
    name: 'tracestate',
    meaning: 'W3C Trace Context. It goes to the upstream beside a valid `traceparent`.',
    example: 'vendor=value',
  },
} as const satisfies Record<string, Field>;

/** What the fields of replies mean. Which replies have them stands in the table of header fields (`http/header-table.ts`). */
export const responseFields = {
  RequestId: {
    name: 'X-Request-ID',
    meaning: 'The id of the request. Quote it when you ask for help: the log of the gateway has it too.',
    example: 'HUHAnb_82IYaknn_-e',
  },
  Via: { name: 'Via', meaning: 'The reply came through the gateway.', example: viaName },
  CacheStatus: {
    name: 'Cache-Status',
    meaning: 'How the answer came about (RFC 9211).',
    example: 'analytics-gateway; hit; ttl=12',
  },
  Age: {
    name: 'Age',
    meaning: 'How old the answer is, in seconds (RFC 9111 section 5.1).',
    example: '3',
  },
  ServerTiming: {
    name: 'Server-Timing',
    meaning:
      'Of an answer that did not come from memory: the part of the cache, and for how many milliseconds the request waited for its turn (`wait`) and for the upstream (`upstream`).',
    example: 'cache;desc=miss, wait;dur=12, upstream;dur=84',
  },
  PreferenceApplied: {
    name: 'Preference-Applied',
    meaning: 'Your `Prefer: wait` has shortened how long the request might take.',
    example: 'wait=5',
  },
  ETag: {
    name: 'ETag',
    meaning: 'The version of the answer, for `If-None-Match`.',
    example: '"gTq4pVKEZ0oF0wGDJVpyzA"',
  },
  LastModified: {
    name: 'Last-Modified',
    meaning: 'When the answer last changed, where the upstream says so.',
    example: 'Sun, 01 Nov 2026 12:00:00 GMT',
  },
  Link: {
    name: 'Link',
    meaning:
      'Where to read on (RFC 8288), such as the next page. Every target leads to this gateway: relative ones count from the address of the request.',
    example: '</api/analytics/posts/?page=2>; rel="next"',
  },
  CacheControl: {
    name: 'Cache-Control',
    meaning:
      'What you may do with your copy: keep it, and ask with it whether it still holds. The operator of the gateway can have the value of the upstream passed on instead.',
    example: 'private, no-cache',
  },
  RateLimit: {
    name: 'RateLimit',
    meaning: 'What is left of your own limit, where you have one.',
    example: '"caller";r=39;t=1',
  },
  RateLimitPolicy: {
    name: 'RateLimit-Policy',
    meaning: 'Your own limit, where you have one.',
    example: '"caller";q=40;w=2',
  },
  ProxyStatus: {
    name: 'Proxy-Status',
    meaning:
      'Where the gateway failed on the way to the upstream, or the status of the upstream matters (RFC 9209).',
    example: 'analytics-gateway; received-status=403',
  },
  RetryAfter: {
    name: 'Retry-After',
    meaning: 'How long to wait before you send the request again, in seconds, where waiting helps.',
    example: '7',
  },
  Authenticate: {
    name: 'WWW-Authenticate',
    meaning: 'How to authenticate (RFC 6750 section 3).',
    example: 'Bearer realm="analytics-gateway"',
  },
} as const satisfies Record<string, Field>;

function coded(texts: readonly string[]): string {
  return texts.map((text) => `\`${text}\``).join(' or ');
}

/** JSON Schema 2020-12. */
export type Schema = Readonly<Record<string, unknown>>;

export interface Reference {
  readonly $ref: string;
}

export interface OpenApiResponse {
  readonly description: string;
  readonly headers: Readonly<Record<string, Reference>>;
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}

const problemCodes = Object.keys(problems) as readonly ProblemCode[];

/** The schemas of the problems (RFC 9457): one for each code, and `Problem`, which is any of them. */
export const problemSchemas: Readonly<Record<string, Schema>> = {
  Problem: {
    description: 'Any problem of the gateway. The member `code` says which one it is.',
    ...oneOf(problemCodes),
  },
  ...Object.fromEntries(problemCodes.map((code) => [code, problemSchema(code)])),
};

/** With a discriminator: some generators give no other way to a member of a union. */
function oneOf(codes: readonly ProblemCode[]): Schema {
  return {
    oneOf: codes.map(schemaReference),
    discriminator: {
      propertyName: 'code',
      mapping: Object.fromEntries(codes.map((code) => [code, schemaReference(code).$ref])),
    },
  };
}

function schemaReference(code: ProblemCode): { readonly $ref: string } {
  return { $ref: `#/components/schemas/${code}` };
}

/** What has no description here is described by RFC 9457. Without a `title`: some generators name a type by it. */
function problemSchema(code: ProblemCode): Schema {
  const { status, title, help } = problems[code];
  return {
    description: `${title}. ${help}`,
    type: 'object',
    required: ['type', 'title', 'status', 'detail', 'code', 'requestId'],
    properties: {
      type: { type: 'string', const: `/problems/${code}` },
      title: { type: 'string', examples: [title] },
      status: { type: 'integer', const: status },
      detail: { type: 'string', description: 'What is wrong with this request, or what to do.' },
      code: { type: 'string', const: code },
      requestId: { type: 'string', description: 'Also in the log of the gateway.' },
      workspace: { type: 'string', description: 'Whose read it was to be, where that workspace has a name.' },
      retryAfter: { type: 'integer', minimum: 1, description: 'Seconds to wait, where waiting helps.' },
    },
  };
}

/** The upstream's statuses that the gateway deals with itself, so that no caller sees them. */
const neverPassed: ReadonlySet<number> = new Set([401, 429]);

/** With these waiting may help. */
const waitStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** The replies that are not problems, for an operation of the upstream's specification or another one. */
export function answerResponses(isSpecified: boolean): Record<string, OpenApiResponse> {
  return {
    200: {
      description: "The upstream's answer, as it came or from memory.",
      headers: headersOf('every reply', 'answers'),
      content: isSpecified
        ? { 'application/json': { schema: answer('JSON. ') } }
        : { '*/*': { schema: answer('') } },
    },
    304: {
      description: 'Your copy still holds: you sent its validator in If-None-Match or If-Modified-Since.',
      headers: headersOf('every reply', 'answers'),
    },
  };
}

/** The replies of what the gateway answers itself. @param statuses of problems that it may answer with besides */
export function gatewayResponses(
  schema: Schema,
  statuses: readonly number[],
): Record<string, OpenApiResponse | Reference> {
  const problem = (name: string): Reference => ({ $ref: `#/components/responses/${name}` });
  return {
    200: {
      description: 'As described.',
      headers: headersOf('every reply'),
      content: { 'application/json': { schema } },
    },
    ...Object.fromEntries(statuses.map((status) => [status, problem(`Problem${status}`)])),
    default: problem('Other'),
  };
}

/** `Problem<status>` for each status of a problem that a GET may get, and `Other`. */
export const problemResponses: Readonly<Record<string, OpenApiResponse>> = {
  ...Object.fromEntries(statuses().map((status) => [`Problem${status}`, problemResponse(status)])),
  Other: {
    description:
      "The upstream's answer with another status, as it came, whatever its type; only a problem has a code.",
    headers: headersOf('every reply', 'answers', 'failures', 'wait'),
    content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
  },
};

function statuses(): readonly number[] {
  const gettable = problemCodes.filter((code) => code !== 'method-not-allowed');
  return [...new Set(gettable.map((code) => problems[code].status))].sort();
}

function problemResponse(status: number): OpenApiResponse {
  const codes = problemCodes.filter((code) => problems[code].status === status);
  const isPassed = !neverPassed.has(status);
  const documented: Documented[] = ['every reply', 'failures'];
  if (waitStatuses.has(status)) documented.push('wait');
  if (status === 401) documented.push('401');
  const meaning = codes.map((code) => `\`${code}\`: ${problems[code].title}.`).join(' ');
  return {
    description: isPassed
      ? `${meaning} Or the upstream's own ${status}, as it came: it is no problem, and has no code.`
      : meaning,
    headers: headersOf(...documented),
    // The upstream's own has any type. Named here, it would take the type of a problem away in every generated client.
    content: { 'application/problem+json': { schema: schemaOf(codes) } },
  };
}

function schemaOf(codes: readonly ProblemCode[]): Schema {
  const [only, ...more] = codes;
  return only !== undefined && more.length === 0 ? schemaReference(only) : oneOf(codes);
}

/** A schema that any value fits. */
function answer(kind: string): Schema {
  return { description: `${kind}The upstream's specification does not show what is in it.` };
}

/** The fields that the table of header fields documents for these replies. */
function headersOf(...replies: readonly Documented[]): Record<string, Reference> {
  const fields = Object.entries(responseFields).filter(([, { name }]) => {
    const documented = documentedFields.get(name);
    return documented !== undefined && replies.includes(documented);
  });
  return Object.fromEntries(
    fields.map(([component, { name }]) => [name, { $ref: `#/components/headers/${component}` }]),
  );
}
