/** Written by "npm run docs:write" from the OpenAPI document that src/documents/ makes. */

/** The reads that every gateway has, and what their answers hold. */
export interface Operations {
  /** The accounts connected to the workspace. The recommended first call: it verifies the key. */
  readonly 'list-accounts': unknown;
  /** The API keys of the key's holder, without their secret values. A 200 confirms the key. */
  readonly 'list-api-keys': unknown;
}

/** Their paths below the base address. */
export const operationPaths: Readonly<Record<keyof Operations, string>> = {
  'list-accounts': '/analytics/accounts/',
  'list-api-keys': '/users/api-keys/',
};

/** What a problem of the gateway is called. A later gateway may have codes that are not among these. */
export type ProblemCode =
  | 'caller-unauthenticated'
  | 'caller-forbidden'
  | 'origin-not-allowed'
  | 'caller-rate-limited'
  | 'host-not-allowed'
  | 'invalid-request'
  | 'uri-too-long'
  | 'unknown-operation'
  | 'method-not-allowed'
  | 'upstream-rate-limited'
  | 'upstream-key-rejected'
  | 'upstream-key-missing'
  | 'upstream-unreachable'
  | 'upstream-invalid-response'
  | 'upstream-timeout'
  | 'not-in-cache'
  | 'overloaded'
  | 'shutting-down'
  | 'internal-error';

/** What the gateway says when it fails (RFC 9457). */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  /** What is wrong with this request, or what to do. */
  readonly detail: string;
  readonly code: ProblemCode;
  /** Also in the log of the gateway. */
  readonly requestId: string;
  /** Whose read it was to be, where that workspace has a name. */
  readonly workspace?: string;
  /** Seconds to wait, where waiting helps. */
  readonly retryAfter?: number;
}

/** What the gateway knows of the caller that asks: `/me`. */
export interface Me {
  /** The name that the operator gave this caller. */
  readonly caller: string;
  /** How the gateway recognised it. */
  readonly by: 'token' | 'jwt' | 'fly' | 'anonymous';
  /** Of a company login: the `sub` of its JWT. */
  readonly subject: string | null;
  /** When the credential ends; null where it does not. */
  readonly expires: string | null;
  /** Where the caller may read. */
  readonly workspaces: readonly {
    /** Null for the workspace without a name. */
    readonly name: string | null;
    /** The base address, or its path. */
    readonly base: string;
    /** The operations that are granted, by name. */
    readonly operations: readonly string[];
  }[];
  /** The caller's own limits; all of them hold. */
  readonly limits: readonly {
    /** As `5000/1d`: so many requests in such a time. */
    readonly limit: string;
    /** Requests that may still come at once. */
    readonly remaining: number;
    /** Until more than these may come. */
    readonly resetSeconds: number;
  }[];
  /** The caller's requests since midnight UTC, at this gateway; null where it has too many callers to count each. */
  readonly today: {
    /** All of them, refused ones too. */
    readonly requests: number;
    /** Answered without waiting for the upstream. */
    readonly fromMemory: number;
    /** For which the gateway asked the upstream. */
    readonly sentUp: number;
    /** Not granted, or over the limit. */
    readonly refused: number;
  } | null;
}
