/** A collector of traces as far as the tests go: takes OTLP over HTTP as JSON, and keeps what came as spans. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Owner } from './process.ts';

type Attributes = Readonly<Record<string, unknown>>;

export interface ExportedSpan {
  readonly name: string;
  /** 2: of a server, 3: of a client. */
  readonly kind: number;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty where it has none. */
  readonly parentSpanId: string;
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: Attributes;
  readonly events: readonly { readonly name: string; readonly attributes: Attributes }[];
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  /** 2: an error. */
  readonly statusCode: number;
  /** Of the process that sent it. */
  readonly resource: Attributes;
}

export interface Collector {
  readonly url: string;
  readonly spans: readonly ExportedSpan[];
  /** Path, fields and body of each export, as they came. */
  readonly exports: readonly { readonly path: string; readonly headers: string; readonly body: string }[];
  /** Each export from now on is answered so; `hang` answers none. */
  answer(how: number | 'hang'): void;
}

interface OtlpAttribute {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}

interface OtlpSpan extends Omit<ExportedSpan, 'attributes' | 'events' | 'links' | 'startNs' | 'endNs'> {
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly OtlpAttribute[];
  readonly events?: readonly { readonly name: string; readonly attributes: readonly OtlpAttribute[] }[];
  readonly links?: ExportedSpan['links'];
  readonly status?: { readonly code?: number };
}

interface OtlpExport {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly OtlpAttribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

/** Starts one that ends with the test. */
export async function startCollector({ onTestFinished }: Owner): Promise<Collector> {
  const spans: ExportedSpan[] = [];
  const exports: { path: string; headers: string; body: string }[] = [];
  let how: number | 'hang' = 200;
  const server = createServer(async (request, response) => {
    const body = await bytesOf(request);
    const headers = request.rawHeaders.join('\n');
    exports.push({ path: request.url ?? '', headers, body: body.toString('latin1') });
    if (how === 'hang') return;
    if (how === 200 && request.headers['content-type'] === 'application/json') {
      spans.push(...spansOf(JSON.parse(body.toString()) as OtlpExport));
    }
    // What goes wrong is said in words that quote what was sent.
    const words = how === 200 ? [] : [`no: ${headers.slice(0, 50).replaceAll('\n', ' ')}`];
    response.writeHead(how, ...words, { 'content-type': 'application/json' }).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    exports,
    answer(next) {
      how = next;
    },
  };
}

async function bytesOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function spansOf({ resourceSpans }: OtlpExport): ExportedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap((scope) =>
      scope.spans.map((span) => ({
        ...{ name: span.name, kind: span.kind, traceId: span.traceId, spanId: span.spanId },
        parentSpanId: span.parentSpanId ?? '',
        startNs: BigInt(span.startTimeUnixNano),
        endNs: BigInt(span.endTimeUnixNano),
        attributes: attributesOf(span.attributes),
        events: (span.events ?? []).map(({ name, attributes }) => ({
          name,
          attributes: attributesOf(attributes),
        })),
        links: span.links ?? [],
        statusCode: span.status?.code ?? 0,
        resource: attributesOf(resource.attributes),
      })),
    ),
  );
}

function attributesOf(list: readonly OtlpAttribute[]): Attributes {
  return Object.fromEntries(list.map(({ key, value }) => [key, Object.values(value)[0]]));
}
