/** The parts of an OpenAPI 3.1 document that the gateway uses. */

/** JSON Schema 2020-12. */
export type Schema = Readonly<Record<string, unknown>>;

export interface Reference {
  readonly $ref: string;
}

export interface OpenApiParameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly description: string;
  readonly required?: true;
  readonly style?: 'form';
  readonly explode?: true;
  readonly schema: Schema;
  readonly example?: string;
}

export interface OpenApiHeader {
  readonly description: string;
  readonly schema: Schema;
  readonly example: string;
}

export interface OpenApiResponse {
  readonly description: string;
  readonly headers: Readonly<Record<string, Reference>>;
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}

export interface OpenApiOperation {
  /** The name by which the operation is granted, as it stands in the log. */
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly (OpenApiParameter | Reference)[];
  /** By status, and `default` for every other. */
  readonly responses: Readonly<Record<string, OpenApiResponse | Reference>>;
}

export interface SecurityScheme {
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
  readonly paths: Readonly<Record<string, { readonly get: OpenApiOperation }>>;
  readonly components: {
    readonly securitySchemes: Readonly<Record<string, SecurityScheme>>;
    readonly parameters: Readonly<Record<string, OpenApiParameter>>;
    readonly headers: Readonly<Record<string, OpenApiHeader>>;
    readonly responses: Readonly<Record<string, OpenApiResponse>>;
    readonly schemas: Readonly<Record<string, Schema>>;
  };
}
