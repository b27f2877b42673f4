/**
 * The description of the gateway for programs (OpenAPI 3.1), made from the table of operations that routes requests and
 * from the table of problems. What the upstream's specification leaves open stays open: no field, parameter or limit of
 * the upstream is described that is not specified. Pure: no clock, no I/O.
 */
import { usualBase } from '../edge/operation.ts';
import { type Operation, segmentPattern, specifiedOperations } from '../operations.ts';
import { version } from '../version.ts';
import {
  answerResponses,
  type Field,
  gatewayResponses,
  type OpenApiResponse,
  problemResponses,
  problemSchemas,
  type Reference,
  requestFields,
  responseFields,
  type Schema,
} from './components.ts';
import { meSchema } from './me.ts';

export interface OpenApiParameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly description: string;
  readonly required?: true;
  readonly schema: Schema;
  readonly example?: string;
}

interface OpenApiHeader {
  readonly description: string;
  readonly schema: Schema;
  readonly example: string;
}

interface OpenApiOperation {
  /** The name by which the operation is granted, as it stands in the log. */
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  /** None of its own: OPENAPI_PATCH_FILE may name some, beside those of the path. */
  readonly parameters?: readonly (OpenApiParameter | Reference)[];
  /** By status, and `default` for every other. */
  readonly responses: Readonly<Record<string, OpenApiResponse | Reference>>;
}

interface OpenApiPath {
  /** Where they are not those of the document. */
  readonly servers?: OpenApiDocument['servers'];
  readonly parameters?: readonly (OpenApiParameter | Reference)[];
  readonly get: OpenApiOperation;
}

interface SecurityScheme {
  readonly type: 'http' | 'apiKey';
  readonly description: string;
  readonly scheme?: 'bearer';
  readonly in?: 'header';
  readonly name?: string;
}

export interface OpenApiDocument {
  readonly openapi: '3.1.0';
  readonly info: {
    readonly title: string;
    readonly version: string;
    readonly summary: string;
    readonly description: string;
    readonly license: { readonly name: string; readonly identifier: string };
  };
  readonly servers: readonly { readonly url: string; readonly description: string }[];
  readonly security: readonly Readonly<Record<string, readonly never[]>>[];
  readonly paths: Readonly<Record<string, OpenApiPath>>;
  readonly components: {
    readonly securitySchemes: Readonly<Record<string, SecurityScheme>>;
    readonly parameters: Readonly<Record<string, OpenApiParameter>>;
    readonly headers: Readonly<Record<string, OpenApiHeader>>;
    readonly responses: Readonly<Record<string, OpenApiResponse>>;
    readonly schemas: Readonly<Record<string, Schema>>;
  };
}

export interface ApiFacts {
  /** The operations to describe: all, or those granted to one caller. */
  readonly operations: readonly Operation[];
  /** Whether a request without a credential is one of a caller. */
  readonly admitsAnonymous: boolean;
  /** The paths of the base addresses that the caller may use: one for each workspace. `/api` alone where left out. */
  readonly bases?: readonly string[];
  /** REQUEST_TIMEOUT; its default where left out. */
  readonly requestTimeoutMs?: number;
}

export const noWorkspace = 'No workspace is granted to you. Ask the operator of the gateway for one.';

/** Makes the whole document, anew for each call. Nothing in it depends on a request but these facts. */
export function describeApi(facts: ApiFacts): OpenApiDocument {
  const { operations, admitsAnonymous, bases = [usualBase] } = facts;
  return {
    openapi: '3.1.0',
    info: {
      title: 'Workspace Analytics Gateway',
      version,
      summary: 'Reads the Workspace Analytics API with a key that only the gateway has.',
      description: [...introduction, timeoutAdvice(facts)].join('\n\n'),
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers:
      bases.length === 0
        ? [{ url: usualBase, description: noWorkspace }]
        : bases.map((url) => ({
            url,
            description: `${workspaceOf(url)} The address is relative to that of this document.`,
          })),
    security: [...ways, ...(admitsAnonymous ? [{}] : [])],
    paths: {
      ...Object.fromEntries(operations.map((operation) => [templateOf(operation.path), describe(operation)])),
      [mePath]: me,
    },
    components: {
      securitySchemes,
      parameters,
      headers: mapped(responseFields, headerOf),
      responses: problemResponses,
      schemas: { Me: meSchema, ...problemSchemas },
    },
  };
}

/** The path that is below no base address. */
const mePath = '/me';

const me: OpenApiPath = {
  servers: [
    { url: '/', description: 'Not below a base address: the address is relative to that of this document.' },
  ],
  get: {
    operationId: 'me',
    summary: 'What the gateway knows of the caller that asks',
    description:
      'Its name, when its credential ends, what it may do and where, what is left of its limits. Answered without the upstream; it does not count for the limits.',
    responses: gatewayResponses({ $ref: '#/components/schemas/Me' }, [401, 403, 429]),
  },
};

function workspaceOf(base: string): string {
  const [, workspace] = /^\/w\/([^/]+)\//.exec(base) ?? [];
  return workspace === undefined ? 'This gateway.' : `The workspace ${workspace} of this gateway.`;
}

const introduction = [
  'Every operation is a read of the Workspace Analytics API, at the same path below `/api`. The gateway adds the key of the upstream, answers repeated reads from memory, and keeps within the limit of the upstream for all callers together.',
  'HEAD is answered like GET, without a body. A path may be sent with or without its trailing slash, and without any encoding. A request has no body.',
  "What a reply's body holds is the upstream's to say. Its specification does not show fields, parameters or limits, and so this document has only those that the operator of the gateway has added. Any other parameter may be sent as well: the query goes up in exactly the bytes that came. A credential in it is refused.",
  'What fails in the gateway is a problem (`application/problem+json`, RFC 9457) with a stable `code`. An answer of the upstream with a status of 400 or above passes as it came, except 401 and 429: it has no `code`.',
];

/** Clients that end a request by themselves, and after how many seconds. */
const clientTimeouts = [
  ['ky', 10],
  ['httpx', 5],
] as const;

/** How long a request may take, and what that means for a client. */
export function timeoutAdvice({ requestTimeoutMs = 25_000 }: Pick<ApiFacts, 'requestTimeoutMs'>): string {
  const seconds = Math.ceil(requestTimeoutMs / 1_000);
  const enough = seconds + 5;
  const hasty = clientTimeouts.filter(([, after]) => after * 1_000 < requestTimeoutMs);
  const named = hasty.map(([name, after]) => `${name} (${after} s)`).join(' and ');
  const giveUp = hasty.length === 1 ? 'gives up sooner by itself' : 'give up sooner by themselves';
  const sooner = named === '' ? '' : `: ${named} ${giveUp}`;
  return `A request has its answer within ${seconds} s, which may be spent waiting for the upstream's limit. Let your client wait longer${sooner}. Set \`timeout: ${enough}_000\` in ky, \`timeout=${enough}\` in httpx and requests, \`AbortSignal.timeout(${enough}_000)\` for fetch.`;
}

const securitySchemes: Readonly<Record<'token' | 'apiKey', SecurityScheme>> = {
  token: {
    type: 'http',
    scheme: 'bearer',
    description: 'Your gateway token, or a JWT of your company login where the gateway accepts one.',
  },
  apiKey: {
    type: 'apiKey',
    in: 'header',
    name: 'X-API-Key',
    description:
      'The same gateway token, for a program that was written for the upstream: it changes its base address and the value of its key. Never the key of the upstream, and never in the URL.',
  },
};

/** Either of them: a caller sends one. */
const ways = [{ token: [] }, { apiKey: [] }] as const;

const parameters: Readonly<Record<string, OpenApiParameter>> = mapped(
  requestFields,
  ({ name, meaning, example }) => ({
    name,
    in: 'header' as const,
    description: meaning,
    schema: { type: 'string' },
    example,
  }),
);

function headerOf({ meaning, example }: Field): OpenApiHeader {
  return { description: meaning, schema: { type: 'string' }, example };
}

/** Its parameters stand beside it, so that a merge patch can give it some of its own: a list is replaced whole. */
function describe(operation: Operation): OpenApiPath {
  const isSpecified = specifiedOperations.some(({ name }) => name === operation.name);
  const names = [...operation.path.matchAll(/\/:(\w+)/g)].map(([, name = '']) => name);
  const shared = Object.keys(parameters).map(
    (name): Reference => ({ $ref: `#/components/parameters/${name}` }),
  );
  return {
    parameters: [...names.map(pathParameter), ...shared],
    get: {
      operationId: operation.name,
      summary: operation.purpose.split('. ', 1)[0] ?? '',
      description: operation.purpose,
      responses: responsesOf(isSpecified),
    },
  };
}

function pathParameter(name: string): OpenApiParameter {
  return {
    name,
    in: 'path',
    required: true,
    description: 'One segment of the path, sent to the upstream as it is.',
    schema: { type: 'string', pattern: `^${segmentPattern}$` },
  };
}

function responsesOf(isSpecified: boolean): Record<string, OpenApiResponse | Reference> {
  const references = Object.keys(problemResponses).map((name): [string, Reference] => [
    name === 'Other' ? 'default' : name.replace(/\D/g, ''),
    { $ref: `#/components/responses/${name}` },
  ]);
  return { ...answerResponses(isSpecified), ...Object.fromEntries(references) };
}

/** The path as OpenAPI writes it: `{id}` for `:id`. */
export function templateOf(path: string): string {
  return path.replace(/\/:(\w+)/g, '/{$1}');
}

function mapped<From, To>(
  record: Readonly<Record<string, From>>,
  map: (from: From) => To,
): Record<string, To> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, map(value)]));
}
