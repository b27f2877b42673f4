/** What a caller may ask about itself: `GET /me`. Pure: no clock, no I/O. */
import { writtenLimit } from '../callers/bucket.ts';
import { type Authenticated, isGranted } from '../callers/caller.ts';
import type { LimitLeft } from '../callers/limit.ts';
import { baseOfWorkspace } from '../edge/operation.ts';
import { toTime } from '../exchange/figures.ts';
import type { Schema } from './components.ts';

export interface MeFacts {
  /** Names of all operations of the gateway. */
  readonly operations: readonly string[];
  /** PUBLIC_BASE_URL, without a slash at its end. */
  readonly publicBase: string | undefined;
  readonly left: readonly LimitLeft[];
  /** Since midnight UTC; `undefined` where the caller is not counted by name. */
  readonly today: object | undefined;
}

/** The document, by `meSchema`. */
export function describeMe(
  { caller, by, subject, expiresAt }: Authenticated,
  { operations, publicBase = '', left, today }: MeFacts,
): object {
  const granted = operations.filter((name) => isGranted(caller, name));
  return {
    caller: caller.name,
    by,
    subject: subject ?? null,
    expires: expiresAt === undefined ? null : toTime(expiresAt),
    workspaces: [...caller.workspaces].map((name) => ({
      name: name || null,
      base: `${publicBase}${baseOfWorkspace(name)}`,
      operations: granted,
    })),
    limits: left.map(({ limit, remaining, resetSeconds }) => ({
      limit: writtenLimit(limit),
      remaining,
      resetSeconds,
    })),
    today: today ?? null,
  };
}

const count: Schema = { type: 'integer', minimum: 0 };

function objectOf(properties: Readonly<Record<string, Schema>>, more: object = {}): Schema {
  return { type: 'object', required: Object.keys(properties), properties, ...more };
}

/** What `/me` answers with. */
export const meSchema: Schema = objectOf(
  {
    caller: { type: 'string', description: 'The name that the operator gave this caller.' },
    by: {
      type: 'string',
      enum: ['token', 'jwt', 'fly', 'anonymous'],
      description: 'How the gateway recognised it.',
    },
    subject: { type: ['string', 'null'], description: 'Of a company login: the `sub` of its JWT.' },
    expires: {
      type: ['string', 'null'],
      format: 'date-time',
      description: 'When the credential ends; null where it does not.',
    },
    workspaces: {
      type: 'array',
      description: 'Where the caller may read.',
      items: objectOf({
        name: { type: ['string', 'null'], description: 'Null for the workspace without a name.' },
        base: { type: 'string', description: 'The base address, or its path.' },
        operations: {
          type: 'array',
          items: { type: 'string' },
          description: 'The operations that are granted, by name.',
        },
      }),
    },
    limits: {
      type: 'array',
      description: "The caller's own limits; all of them hold.",
      items: objectOf({
        limit: { type: 'string', description: 'As `5000/1d`: so many requests in such a time.' },
        remaining: { ...count, description: 'Requests that may still come at once.' },
        resetSeconds: { ...count, description: 'Until more than these may come.' },
      }),
    },
    today: objectOf(
      {
        requests: { ...count, description: 'All of them, refused ones too.' },
        fromMemory: { ...count, description: 'Answered without waiting for the upstream.' },
        sentUp: { ...count, description: 'For which the gateway asked the upstream.' },
        refused: { ...count, description: 'Not granted, or over the limit.' },
      },
      {
        type: ['object', 'null'],
        description:
          "The caller's requests since midnight UTC, at this gateway; null where it has too many callers to count each.",
      },
    ),
  },
  { description: 'The caller about itself.' },
);
