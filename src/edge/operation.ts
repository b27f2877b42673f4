/** From a raw request target to a workspace, and an operation that this caller may do there; everything else is refused. */
import { type Caller, isGranted, unnamedWorkspace } from '../callers/caller.ts';
import { GatewayError } from '../errors.ts';
import type { Layer } from '../exchange/layer.ts';
import { matchOperations, type Operation, problemOfQuery } from '../operations.ts';
import { type HoldsCredential, wouldRefuse } from './authenticate.ts';
import type { EdgeWorkspace, InboundRequest, Reply } from './inbound.ts';
import { announcesBody } from './request-head.ts';

/** Path and query together. */
const maxTargetBytes = 8 * 1_024;

const credentialInUrl =
  'A credential is never sent in the URL, where logs keep it: send your token in a header, and replace the one that was in this URL.';

export interface SelectOptions {
  /** By name. */
  readonly workspaces: ReadonlyMap<string, EdgeWorkspace>;
  readonly operations: readonly Operation[];
  readonly holdsCredential: HoldsCredential;
}

/**
 * Refuses what is not a read that this caller may do in a workspace that it is granted, and a credential in the URL.
 *
 * @throws GatewayError `unknown-operation`, `method-not-allowed`, `invalid-request`, `uri-too-long`,
 * `caller-forbidden`
 */
export function selectOperation({
  workspaces,
  operations,
  holdsCredential,
}: SelectOptions): Layer<InboundRequest, Reply> {
  const matchPath = matchOperations(operations);
  const unknown = detailOfUnknown(operations);

  function refuseCredential(urlPart: string, request: InboundRequest): void {
    if (holdsCredential(urlPart, request)) {
      throw new GatewayError('invalid-request', {
        detail: credentialInUrl,
        reason: 'a credential in the URL',
      });
    }
  }

  return (next) =>
    function select(request, trace) {
      if (request.target.length > maxTargetBytes) throw new GatewayError('uri-too-long');
      const { caller, path } = request;
      const base = baseOf(path);
      let workspace = caller === undefined ? undefined : workspaceOf(base?.name, caller, workspaces);
      if (workspace === undefined && base?.name && wouldRefuse('caller-forbidden', request, trace))
        workspace = workspaces.get(base.name);
      // Nothing is looked up in a workspace that is not granted.
      const match =
        base === undefined || workspace === undefined ? undefined : matchPath(path.slice(base.end));
      // An operation without `:name` has one path, so a plain read is spared the search.
      const isFixedPath = match !== undefined && match.path === match.operation.path;
      if (!isFixedPath) refuseCredential(path, request);
      if (request.query !== '') refuseCredential(request.query, request);
      if (caller === undefined || workspace === undefined) throw notGranted(caller);
      if (workspace.name !== unnamedWorkspace) trace.workspace = workspace.name;
      request.workspace = workspace;
      if (match === undefined) throw unknownOperation(below(path.slice(0, base?.end), unknown));
      trace.operation = match.operation.name;
      if (request.method !== 'GET' && request.method !== 'HEAD') refuseMethod();
      if (announcesBody(request.headers)) throw invalid('A read has no body.', { connection: 'close' });
      const problem = problemOfQuery(request.query);
      if (problem !== undefined) throw invalid(problem);
      const { name } = match.operation;
      if (!isGranted(caller, name) && !wouldRefuse('caller-forbidden', request, trace)) throw forbidden(name);
      request.match = match;
      return next(request, trace);
    };
}

/** Ends every request whose method is not for reading. @throws GatewayError `method-not-allowed` */
export function refuseMethod(): never {
  throw new GatewayError('method-not-allowed', { headers: { allow: 'GET, HEAD' } });
}

/** Ends every request that no route takes. @throws GatewayError `unknown-operation` */
export function refuseUnknown(operations: readonly Operation[]): () => never {
  const detail = detailOfUnknown(operations);
  return () => {
    throw unknownOperation(detail);
  };
}

/** The log has the path, and need not repeat the table. */
function unknownOperation(detail: string): GatewayError {
  return new GatewayError('unknown-operation', { detail, reason: 'no operation at this path' });
}

/** So many are listed in a problem. */
const maxListed = 20;

/** What a 404 says: what could have been meant. */
function detailOfUnknown(operations: readonly Operation[]): string {
  const listed = operations.slice(0, maxListed).map(({ path }) => `GET ${usualBase}${path}`);
  const more = operations.length - listed.length;
  const rest = more > 0 ? ` and ${more} more, which /openapi.json lists` : '';
  return `There is no operation at this path. These exist: ${listed.join(', ')}${rest}. Spell the path exactly so, without any encoding.`;
}

/** The same of the operations below another base address. */
function below(base: string, detail: string): string {
  return base === usualBase ? detail : detail.replaceAll(`GET ${usualBase}/`, `GET ${base}/`);
}

function forbidden(operation: string): GatewayError {
  return new GatewayError('caller-forbidden', {
    detail: `The operation ${operation} is not among those granted to you. Ask the operator of the gateway for it by this name.`,
    reason: `not granted: ${operation}`,
  });
}

/** The workspace that the path names, or the caller's usual one; `undefined` where it is not granted. */
function workspaceOf(
  named: string | undefined,
  { workspaces: granted, usualWorkspace }: Caller,
  workspaces: ReadonlyMap<string, EdgeWorkspace>,
): EdgeWorkspace | undefined {
  const name = named ?? usualWorkspace;
  if (name === undefined || !granted.has(name) || named === unnamedWorkspace) return undefined;
  return workspaces.get(name);
}

/** The same whether there is such a workspace or not. */
function notGranted(caller: Caller | undefined): GatewayError {
  const bases = caller === undefined ? [] : listBases(caller);
  return new GatewayError('caller-forbidden', {
    reason: 'a workspace that is not granted',
    detail:
      bases.length === 0
        ? 'Your token is fine, but no workspace is granted to you. Ask the operator of the gateway.'
        : `Your token is fine, but this workspace is not granted to you. Base addresses that you may use: ${bases.join(', ')}.`,
  });
}

function invalid(detail: string, headers?: Readonly<Record<string, string>>): GatewayError {
  return new GatewayError('invalid-request', headers === undefined ? { detail } : { detail, headers });
}

/** The base address of a request that names no workspace. */
export const usualBase = '/api';
const namedStart = '/w/';

export interface BaseMatch {
  /** `undefined` where the path names none. */
  readonly name: string | undefined;
  /** Where in the path the base address ends. */
  readonly end: number;
}

const usual: BaseMatch = { name: undefined, end: usualBase.length };

/** The base address that a raw path begins with, `/api` or `/w/<workspace>/api`; `undefined` where it is neither. */
export function baseOf(path: string): BaseMatch | undefined {
  if (path.startsWith(usualBase)) return usual;
  if (!path.startsWith(namedStart)) return undefined;
  const slash = path.indexOf('/', namedStart.length);
  if (slash === -1 || !path.startsWith(usualBase, slash)) return undefined;
  return { name: path.slice(namedStart.length, slash), end: slash + usualBase.length };
}

/** The path of a workspace's base address. */
export function baseOfWorkspace(name: string): string {
  return name === unnamedWorkspace ? usualBase : `${namedStart}${name}${usualBase}`;
}

/** The paths of the base addresses that this caller may use, the usual one first. */
export function listBases({ workspaces, usualWorkspace }: Caller): readonly string[] {
  const named = [...workspaces].filter((name) => name !== unnamedWorkspace);
  return [...(usualWorkspace === undefined ? [] : [usualBase]), ...named.map(baseOfWorkspace)];
}
