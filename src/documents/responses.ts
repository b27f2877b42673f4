/** The replies of an operation by status: the upstream's answer, and the gateway's problems. Pure. */
import { type ProblemCode, problems } from '../errors.ts';
import { type Documented, documentedFields } from '../http/header-table.ts';
import { responseFields } from './message-fields.ts';

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
