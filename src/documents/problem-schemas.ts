/** The schemas of the gateway's problems (RFC 9457), from the one table of them. Pure. */
import { type ProblemCode, problems } from '../errors.ts';
import type { Schema } from './openapi-types.ts';

export const problemCodes = Object.keys(problems) as readonly ProblemCode[];

/** One schema for each code, and `Problem`, which is any of them. */
export const problemSchemas: Readonly<Record<string, Schema>> = {
  Problem: {
    title: 'Any problem of the gateway',
    description: 'The member `code` says which one it is.',
    oneOf: problemCodes.map(schemaReference),
    discriminator: {
      propertyName: 'code',
      mapping: Object.fromEntries(problemCodes.map((code) => [code, schemaReference(code).$ref])),
    },
  },
  ...Object.fromEntries(problemCodes.map((code) => [code, schemaOf(code)])),
};

export function schemaReference(code: ProblemCode): { readonly $ref: string } {
  return { $ref: `#/components/schemas/${code}` };
}

/** What has no description here is described by RFC 9457. */
function schemaOf(code: ProblemCode): Schema {
  const { status, title, help } = problems[code];
  return {
    title,
    description: help,
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
