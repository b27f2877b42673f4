/** The types of the client for TypeScript, `src/client/operations.ts`, from the OpenAPI document. */

import type { Schema } from '../src/documents/components.ts';
import type { OpenApiDocument } from '../src/documents/openapi.ts';

/**
 * The file's whole text, formatted.
 *
 * @throws Error for a schema of a kind that the document did not have when this was written
 */
export function clientTypes({ paths, components }: OpenApiDocument): string {
  const operations = Object.entries(paths)
    .filter(([, { servers }]) => servers === undefined)
    .map(([path, { get }]) => ({ path, ...get }));
  const { Problem, Me, ...problems } = components.schemas;
  if (Me === undefined) throw new Error('the document does not describe /me');
  return `/** Written by "npm run docs:write" from the OpenAPI document that src/documents/ makes. */

/** The reads that every gateway has, and what their answers hold. */
export interface Operations {
${operations
  .map(({ operationId, description, responses }) =>
    member(operationId, typeOf(jsonOf(responses['200'])), description),
  )
  .join('')}}

/** Their paths below the base address. */
export const operationPaths: Readonly<Record<keyof Operations, string>> = {
${operations.map(({ operationId, path }) => `  '${operationId}': '${path}',\n`).join('')}};

/** What a problem of the gateway is called. A later gateway may have codes that are not among these. */
export type ProblemCode =${Object.keys(problems)
    .map((code) => `\n  | '${code}'`)
    .join('')};

/** What the gateway says when it fails (RFC 9457). */
export interface Problem {
${membersOf(Object.values(problems))}}

/** What the gateway knows of the caller that asks: \`/me\`. */
export interface Me ${typeOf(Me)}
`;
}

/** The members that all problems have; where their values are constants, a member is any of them. */
function membersOf(schemas: readonly Schema[]): string {
  const [first] = schemas as readonly {
    readonly required: readonly string[];
    readonly properties: Readonly<Record<string, Schema>>;
  }[];
  if (first === undefined) throw new Error('the document has no problems');
  return Object.entries(first.properties)
    .map(([name, schema]) => {
      const type = name === 'code' ? 'ProblemCode' : typeOf(schema);
      const { description } = schema as { readonly description?: string };
      return member(first.required.includes(name) ? name : `${name}?`, type, description);
    })
    .join('');
}

function member(name: string, type: string, description: string | undefined): string {
  const written = /^\w+\??$/.test(name) ? name : `'${name}'`;
  return `${description === undefined ? '' : `  /** ${description} */\n`}  readonly ${written}: ${type};\n`;
}

function jsonOf(response: object | undefined): Schema {
  const { content } = response as {
    readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
  };
  const schema = content?.['application/json']?.schema;
  if (schema === undefined) throw new Error('a read of the specification has no JSON');
  return schema;
}

/** A schema without a type is one that any value fits. */
function typeOf(schema: Schema): string {
  if (!('type' in schema) && !('$ref' in schema)) return 'unknown';
  const { type, enum: values, items, properties } = schema as Readonly<Record<string, unknown>>;
  if (Array.isArray(type)) return type.map((one: string) => typeOf({ ...schema, type: one })).join(' | ');
  if (Array.isArray(values)) return values.map((value) => `'${value}'`).join(' | ');
  if (type === 'string' || type === 'null') return type;
  if (type === 'integer') return 'number';
  if (type === 'array') return `readonly ${typeOf(items as Schema)}[]`;
  if (type === 'object') {
    const members = Object.entries(properties as Readonly<Record<string, Schema>>).map(([name, one]) =>
      // What is inside a member stands further in.
      member(name, typeOf(one).replaceAll('\n', '\n  '), one['description'] as string | undefined),
    );
    return `{\n${members.join('')}}`;
  }
  throw new Error(`the client has no type for ${JSON.stringify(schema)}`);
}
