/**
 * The documents' routes: what a person reads who writes a caller. What makes a document is loaded when it is first asked
 * for, and only the last API document is kept: a gateway whose documents are not read pays for none of them.
 */
import { type Caller, isGranted } from '../callers/caller.ts';
import type { CallerLimits } from '../callers/limit.ts';
import type { Fields, InboundRequest, Reply } from '../edge/inbound.ts';
import { listBases, refuseMethod, usualBase } from '../edge/operation.ts';
import { problemPage } from '../edge/problems.ts';
import { documentFields, listed } from '../edge/reply-fields.ts';
import { GatewayError } from '../errors.ts';
import type { Eventually, Handler } from '../exchange/layer.ts';
import type { Operation } from '../operations.ts';
import type { ApiFacts, OpenApiDocument } from './openapi.ts';
import type { OpenApiPatch } from './openapi-patch.ts';
import type { RenderedDocument } from './pages.ts';

/** What documents say of this gateway. */
export interface DescribedGateway {
  /** One caller's request, waiting and retries included. */
  readonly requestTimeoutMs: number;
  /** What the operator adds to the API document. */
  readonly patch: OpenApiPatch | undefined;
  /** Whether links in answers lead past the gateway. */
  linksLeadPast(): boolean;
}

export interface DocumentOptions extends MeOptions, DescribedGateway {
  readonly operations: readonly Operation[];
  /** The caller of a request without a credential; `undefined` where such a request is refused. */
  readonly anonymous: () => Caller | undefined;
  /** By which the listener is reached where no proxy is before it. */
  readonly scheme: 'http' | 'https';
}

export type DocumentHandler = Handler<InboundRequest, Reply>;

/** What `/me` asks of other parts. */
export interface MeOptions {
  /** PUBLIC_BASE_URL, without a slash at its end. */
  readonly publicBase?: string | undefined;
  readonly limits: Pick<CallerLimits, 'left'>;
  /** A caller's requests since midnight UTC; `undefined` where they are not counted by themselves. */
  readonly today: (caller: string) => object | undefined;
}

export interface DocumentRoutes {
  /** By path. A credential is not looked at. */
  readonly open: Readonly<Record<string, DocumentHandler>>;
  /** By path. For a caller that sent its credential, they have what this caller may do. */
  readonly ofCaller: Readonly<Record<string, DocumentHandler>>;
  /** By path. For a caller alone, about itself. */
  readonly forCaller: Readonly<Record<string, DocumentHandler>>;
}

export function documentRoutes(options: DocumentOptions): DocumentRoutes {
  // Making the API document takes many times what sending it takes, and strangers may ask for it: the last is kept.
  let described: { readonly key: string; readonly document: SentDocument } | undefined;
  return {
    open: {
      '/': handle('start-page', async (request) => {
        const { startDocument, startPage } = await import('./pages.ts');
        const anonymous = options.anonymous();
        const [base = usualBase] = anonymous === undefined ? [] : listBases(anonymous);
        return (await prefersPage(request)) ? startPage(base) : json(startDocument(base));
      }),
      '/problems': handle('problem-list', async (request) => {
        const { problemList, problemListPage } = await import('./pages.ts');
        return (await prefersPage(request)) ? problemListPage() : json(problemList);
      }),
      '/problems/': moveTo('problem-list', '../problems'),
      '/problems/:code': handle('problem-document', explainProblem),
    },
    ofCaller: {
      '/openapi.json': handle('api-document', async (request) => {
        const facts = factsFor(request, options);
        const key = JSON.stringify(facts);
        if (described?.key !== key) {
          described = { key, document: sent(json(await describePatched(facts, options))) };
        }
        return described.document;
      }),
      '/docs': handle('api-page', async (request) => {
        const { apiPage } = await import('./api-page.ts');
        const { host = 'localhost' } = request.headers;
        const facts = factsFor(request, options);
        return apiPage({
          ...facts,
          document: await describePatched(facts, options),
          seenOrigin: `${options.scheme}://${host}`,
          publicBase: options.publicBase,
          linksLeadPast: options.linksLeadPast(),
        });
      }),
      '/docs/': moveTo('api-page', '../docs'),
    },
    forCaller: {
      '/me': handle('me', async ({ authenticated }) => {
        if (authenticated === undefined) throw new GatewayError('internal-error');
        const { describeMe } = await import('./me.ts');
        const { operations, publicBase, limits, today } = options;
        const { caller } = authenticated;
        return json(
          describeMe(authenticated, {
            operations: operations.map(({ name }) => name),
            publicBase,
            left: limits.left(caller),
            today: today(caller.name),
          }),
        );
      }),
    },
  };
}

/** A document as it is sent. */
interface SentDocument {
  readonly fields: Fields;
  readonly body: Buffer;
}

function sent({ text, fields }: RenderedDocument): SentDocument {
  const body = Buffer.from(text);
  return { fields: listed({ ...documentFields, ...fields, 'content-length': String(body.length) }), body };
}

/** Answers GET and HEAD with a document. */
function handle(
  name: string,
  render: (request: InboundRequest) => Eventually<RenderedDocument | SentDocument>,
): DocumentHandler {
  return async function answer(request, trace) {
    trace.operation = name;
    refuseChanges(request);
    const document = await render(request);
    const { body, fields } = 'body' in document ? document : sent(document);
    return { status: 200, fields, body: request.method === 'HEAD' ? null : body };
  };
}

/** Sends a path with a slash at its end to the one without: the links of a page are relative, for a gateway below a path. */
function moveTo(name: string, location: string): DocumentHandler {
  return function move(request, trace) {
    trace.operation = name;
    refuseChanges(request);
    const fields = listed({ ...documentFields, location, 'content-length': '0' });
    return { status: 308, fields, body: null };
  };
}

function refuseChanges({ method }: InboundRequest): void {
  if (method !== 'GET' && method !== 'HEAD') refuseMethod();
}

async function prefersPage(request: InboundRequest): Promise<boolean> {
  return (await import('./pages.ts')).prefersPage(request.field('accept'));
}

/** For people a text, and for programs that ask for JSON the same facts as `/problems` has. */
async function explainProblem(request: InboundRequest): Promise<RenderedDocument> {
  const code = request.path.slice('/problems/'.length);
  const text = problemPage(code);
  if (text === undefined) {
    throw new GatewayError('unknown-operation', {
      detail: 'There is no such problem. /problems lists them all.',
    });
  }
  const { namesJson } = await import('./pages.ts');
  if (!namesJson(request.field('accept'))) return { text };
  const { problemList } = await import('./pages.ts');
  return json(problemList.find((problem) => problem.code === code));
}

/** Without a credential all operations are described: who may do which is nothing of theirs. */
function factsFor(
  { caller }: InboundRequest,
  { operations, anonymous, requestTimeoutMs }: DocumentOptions,
): ApiFacts {
  // Of the workspaces' names a caller learns those that it is granted.
  const reader = caller ?? anonymous();
  return {
    operations: caller === undefined ? operations : operations.filter(({ name }) => isGranted(caller, name)),
    admitsAnonymous: anonymous() !== undefined,
    requestTimeoutMs,
    ...(reader === undefined ? {} : { bases: listBases(reader) }),
  };
}

async function describePatched(facts: ApiFacts, { patch }: DocumentOptions): Promise<OpenApiDocument> {
  const { describeApi } = await import('./openapi.ts');
  if (patch === undefined) return describeApi(facts);
  return (await import('./openapi-patch.ts')).patchDocument(describeApi(facts), patch);
}

function json(value: unknown): RenderedDocument {
  return { text: `${JSON.stringify(value, null, 2)}\n`, fields: { 'content-type': 'application/json' } };
}
