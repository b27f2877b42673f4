/**
 * The admin listener, for those who run the gateway: its routes, as a Hono app (metrics, status, console, purge, probes),
 * on a server with limits of its own that shares the event loop with the callers' one. `middleware.ts` has what requests
 * pass before. Nothing here grows with what is stored, except a purge. What only one route needs is loaded at its first
 * request.
 */
import { setImmediate } from 'node:timers/promises';
import { type Context, Hono, type MiddlewareHandler } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import type { Status } from '../browser/console/status.ts';
import { fieldsOfRefusedRequest, type RefusalFields } from '../edge/access-log.ts';
import { listenThrough, pathAsSent } from '../edge/adapter.ts';
import { closeServer, listen } from '../edge/listen.ts';
import { problemPage, problemText } from '../edge/problems.ts';
import { documentFields, problemFields } from '../edge/reply-fields.ts';
import { createHttpServer } from '../edge/server.ts';
import { GatewayError, problems } from '../errors.ts';
import { maxCallers } from './caller-counts.ts';
import { type DatedVerdict, HealthWatch, History, type RecentRequests } from './history.ts';
import { LiveEvents } from './live-events.ts';
import {
  type AdminEnv,
  guardAccess,
  guardChanges,
  type MiddlewareOptions,
  numberRequest,
  redactReplies,
  refuseBody,
  searched,
} from './middleware.ts';
import { type AdminSnapshot, type AdminSources, snapshotOfOne, takeSnapshot } from './snapshot.ts';

interface AdminAppOptions extends MiddlewareOptions {
  readonly sources: AdminSources;
  onPurge(purged: Purged): void;
  /** Whether a text holds the upstream key: such a text is not logged. */
  readonly isSecret: (text: string) => boolean;
  onRefused(refusal: AdminRefusal): void;
  /** A route failed. */
  onFault(error: unknown): void;
}

/** A request that was refused, or bytes that were no request. */
export interface AdminRefusal extends RefusalFields {
  /** The problem's, or the parser's. */
  readonly code: string;
  readonly reason: string;
}

export interface Purged {
  /** Left out where all workspaces were purged, and for the unnamed one. */
  readonly workspace?: string;
  /** Left out where everything was purged. */
  readonly operation?: string;
  /** How many reads were stored, and how many bytes they took. */
  readonly entries: number;
  readonly bytes: number;
}

type AdminApp = Hono<AdminEnv>;
type Handler = (context: Context<AdminEnv>) => Response | Promise<Response>;

interface AdminPart {
  readonly app: AdminApp;
  /** Ends what goes on between requests, and the replies that have no end of their own. */
  close(): void;
}

/** The first to see a request is the last to see its reply. */
function createAdminApp(options: AdminAppOptions): AdminPart {
  const { sources } = options;
  const health = new HealthWatch();
  const live: LiveEvents = new LiveEvents({
    ...options,
    status: (workspace) => readStatus(parts, workspace),
    history: (workspace) => JSON.stringify(history.points(workspace)),
  });
  const history: History = new History({
    ...options,
    async look() {
      const snapshot = await takeSnapshot(sources, 0);
      health.judge(snapshot);
      return snapshot;
    },
    onPoint(point, workspace) {
      const json = JSON.stringify(point);
      live.tell(workspace, 'point', json);
      // A single workspace has the points of all.
      const [only, ...others] = sources.workspaces;
      if (others.length === 0) live.tell(only?.name, 'point', json);
    },
  });
  const parts: StatusParts = { options, health, history };
  const app: AdminApp = new Hono({ getPath: pathAsSent });
  app.use(redactReplies(options), numberRequest, guardAccess(options.hosts));

  route(app, 'GET', '/', showConsole);
  route(app, 'GET', '/status', (context) => showStatus(context, parts));
  route(app, 'GET', '/events', (context) => showEvents(context, live, sources));
  route(app, 'GET', '/metrics', (context) => showMetrics(context, options, health));
  const guardChange = guardChanges(options);
  route(app, 'POST', '/cache/purge', (context) => purge(context, options), guardChange);
  route(app, 'GET', '/livez', (context) => probe(context, undefined));
  route(app, 'GET', '/readyz', (context) => probe(context, sources.notReady()));
  route(app, 'GET', '/problems/:code', showProblem);

  const paths = [...new Set(app.routes.map(({ path }) => path))].filter((path) => !/[*:]/.test(path));
  app.notFound(() => {
    throw new GatewayError('unknown-operation', { detail: `The admin listener has ${paths.join(', ')}.` });
  });
  app.onError((error, context) => renderProblem(error, context, options));
  return {
    app,
    close() {
      history.close();
      live.close();
    },
  };
}

/** Registers a route that takes one method (and HEAD where that is GET) and no body. */
function route(
  app: AdminApp,
  method: 'GET' | 'POST',
  path: string,
  handler: Handler,
  ...guards: MiddlewareHandler<AdminEnv>[]
): void {
  const allow = method === 'GET' ? 'GET, HEAD' : method;
  app.on(method, [path], ...guards, refuseBody, handler);
  app.all(path, () => {
    throw new GatewayError('method-not-allowed', { headers: { allow }, detail: `Use ${allow}.` });
  });
}

function renderProblem(
  thrown: Error,
  context: Context<AdminEnv>,
  { isSecret, onRefused, onFault }: AdminAppOptions,
): Response {
  if (thrown instanceof GatewayError) {
    const { code, message: reason } = thrown;
    const { socket, headers, rawHeaders } = context.env.incoming;
    const request = { peer: socket.remoteAddress, path: context.req.path, headers, rawHeaders };
    onRefused({ code, reason, ...fieldsOfRefusedRequest(thrown, request, isSecret) });
  } else {
    onFault(thrown);
  }
  const error =
    thrown instanceof GatewayError ? thrown : new GatewayError('internal-error', { cause: thrown });
  const status = problems[error.code].status as ContentfulStatusCode;
  return context.body(problemText(error, context.get('requestId')), status, {
    ...problemFields,
    ...error.headers,
  });
}

const showConsole: Handler = async (context) => {
  const { consolePage, consoleFields } = await import('./console-page.ts');
  return context.body(consolePage, 200, consoleFields);
};

function showEvents(context: Context<AdminEnv>, live: LiveEvents, sources: AdminSources): Response {
  const query = queryOf(context, ['workspace'], 'The events take ?workspace=NAME, once, or nothing.');
  const workspace = query.get('workspace');
  workspacesOf(sources, workspace);
  const fields = { ...documentFields, 'content-type': 'text/event-stream' };
  context.set('isSearched', true);
  if (context.env.incoming.method === 'HEAD') return context.body(null, 200, fields);
  return context.body(live.open(workspace), 200, fields);
}

/** What remembers something of the status. */
interface StatusParts {
  readonly options: AdminAppOptions;
  readonly health: HealthWatch;
  readonly history: History;
}

async function showStatus(context: Context<AdminEnv>, parts: StatusParts): Promise<Response> {
  const query = queryOf(context, ['workspace'], 'The status takes ?workspace=NAME, once, or nothing.');
  return json(context, await readStatus(parts, query.get('workspace')));
}

/** @param workspace the only one that is wanted of several */
async function readStatus({ options, health, history }: StatusParts, workspace?: string): Promise<string> {
  const { sources } = options;
  workspacesOf(sources, workspace);
  const snapshot = await takeSnapshot(sources, maxCallers);
  const needs = purgeNeeds(options);
  if (workspace === undefined) {
    return statusText(snapshot, health.judge(snapshot), history.recentOf(snapshot), needs);
  }
  const own = snapshotOfOne(snapshot, workspace);
  return statusText(own, health.judgeOne(snapshot, workspace), history.recentOf(own), needs);
}

/** What a purge asks for, where the listener stands as it does. */
function purgeNeeds({ hosts, readToken }: AdminAppOptions): PurgeNeeds {
  if (hosts.isLocal) return 'nothing';
  return readToken === undefined ? 'setting' : 'token';
}

/** Searched for the key piece by piece, between which other requests go on. */
async function showMetrics(
  context: Context<AdminEnv>,
  { sources, redact }: AdminAppOptions,
  health: HealthWatch,
): Promise<Response> {
  const [{ metricsOf }, { exposition, expositionType }, { processMetrics, readRuntime }] = await Promise.all([
    import('./metrics.ts'),
    import('./exposition.ts'),
    import('./runtime.ts'),
  ]);
  const snapshot = await takeSnapshot(sources, 0);
  const parts = [metricsOf(snapshot, health.judge(snapshot)), processMetrics(snapshot, await readRuntime())];
  const pieces: Buffer[] = [];
  for (const part of parts) {
    for (const text of exposition(part)) {
      pieces.push(searched(text, redact));
      await setImmediate();
    }
  }
  context.set('isSearched', true);
  const body = Buffer.concat(pieces);
  const fields = { 'content-type': expositionType, 'content-length': String(body.length) };
  return context.body(body, 200, { ...documentFields, ...fields });
}

/** The parameters of a query that takes these names, each once. */
function queryOf(
  context: Context<AdminEnv>,
  names: readonly string[],
  taken: string,
): ReadonlyMap<string, string> {
  const { url = '' } = context.env.incoming;
  const given = [...new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?') + 1) : '')];
  const query = new Map(given);
  if (query.size < given.length || given.some(([name]) => !names.includes(name))) {
    throw new GatewayError('invalid-request', { detail: taken });
  }
  return query;
}

/** The workspaces that a request means: the one that it names, or all. */
function workspacesOf({ workspaces }: AdminSources, name: string | undefined): AdminSources['workspaces'] {
  const meant = name === undefined ? workspaces : workspaces.filter((workspace) => workspace.name === name);
  if (meant.length > 0) return meant;
  const names = workspaces.map((workspace) => workspace.name).filter((one) => one !== '');
  const known = names.length === 0 ? 'This gateway has no named ones.' : `Known: ${names.join(', ')}.`;
  throw new GatewayError('unknown-operation', { detail: `There is no such workspace. ${known}` });
}

function purge(context: Context<AdminEnv>, { sources, onPurge }: AdminAppOptions): Response {
  const taken = 'A purge takes ?operation=NAME and ?workspace=NAME, each once, or nothing.';
  const query = queryOf(context, ['operation', 'workspace'], taken);
  const operation = query.get('operation');
  if (operation !== undefined && !sources.operations.includes(operation)) {
    throw new GatewayError('unknown-operation', {
      detail: `There is no such operation. Known: ${sources.operations.join(', ')}.`,
    });
  }
  const workspace = query.get('workspace');
  let entries = 0;
  let bytes = 0;
  for (const one of workspacesOf(sources, workspace)) {
    const before = one.cache().bytes;
    entries += one.purge(operation);
    bytes += before - one.cache().bytes;
  }
  const purged = {
    ...(workspace ? { workspace } : {}),
    ...(operation === undefined ? {} : { operation }),
    entries,
    bytes,
  };
  onPurge(purged);
  return json(context, JSON.stringify(purged));
}

function probe(context: Context<AdminEnv>, problem: string | undefined): Response {
  return context.body(`${problem ?? 'ok'}\n`, problem === undefined ? 200 : 503, documentFields);
}

const showProblem: Handler = (context) => {
  const text = problemPage(context.req.path.slice('/problems/'.length));
  if (text === undefined) throw new GatewayError('unknown-operation');
  return context.body(text, 200, documentFields);
};

function json(context: Context<AdminEnv>, text: string): Response {
  return context.body(`${text}\n`, 200, {
    ...problemFields,
    'content-type': 'application/json',
  });
}

/** What a purge asks for: nothing, the token of ADMIN_TOKEN_FROM, or that this setting is set at all. */
export type PurgeNeeds = 'nothing' | 'token' | 'setting';

/**
 * The document of `/status` as JSON, in one line. Its names are a contract, and every member is always there: one that
 * does not apply is null. Of several workspaces each has its own parts, in `workspaces`; of one they stand beside the rest.
 */
export function statusText(
  snapshot: AdminSnapshot,
  verdict: DatedVerdict,
  recentOf: (caller: string) => RecentRequests,
  purgeNeeds: PurgeNeeds,
): string {
  const { version, node, at, startedAt, uptimeSeconds, ready, notReady, ...parts } = snapshot;
  const { health, since, reasons } = verdict;
  const workspaces = snapshot.workspaces.map(({ gate, ...one }) => ({
    ...one,
    gate: { ...gate, callers: gate.callers.slice(0, maxCallers) },
  }));
  const none = {
    workspace: null,
    key: null,
    upstream: null,
    gate: null,
    circuit: null,
    cache: null,
    links: null,
  };
  const [only = none] = workspaces.length === 1 ? workspaces : [];
  const document = {
    version,
    node,
    at,
    startedAt,
    uptimeSeconds,
    health,
    since,
    reasons,
    ready,
    notReady,
    ...only,
    ...parts,
    callers: {
      ...parts.callers,
      list: parts.callers.list.map((one) => ({ ...one, recent: recentOf(one.name) })),
    },
    workspaces: only === none ? workspaces : [],
    purgeNeeds,
  };
  // The console's own view of the document is checked here.
  return JSON.stringify(document satisfies Status, (name, value) => (name === 'beside' ? undefined : value));
}

export interface AdminOptions extends Omit<AdminAppOptions, 'isClosing'> {
  readonly port: number;
  /** A few scrapers, consoles and terminals. Their descriptors are among the gateway's own. */
  readonly maxConnections: number;
}

export interface Admin {
  /** Where it can be reached. */
  readonly url: string;
  close(): Promise<void>;
}

const headersTimeoutMs = 10_000;
const stillMs = 60_000;
/** How long a reply that is being sent may take when the listener closes. */
const graceMs = 500;

/** @throws ListenError naming ADMIN_HOST or ADMIN_PORT */
export async function openAdmin(options: AdminOptions): Promise<Admin> {
  const { hosts, maxConnections, onFault } = options;
  let closing = false;
  const part = createAdminApp({ ...options, isClosing: () => closing });
  const server = createHttpServer(
    listenThrough(part.app, onFault),
    { headersTimeoutMs, maxConnections, stillMs, isSecret: options.isSecret, isEnding: () => closing },
    {
      onRefused: (refusal) => options.onRefused({ reason: 'no request', ...refusal }),
      onListenerError: onFault,
    },
  );
  const names = { host: 'ADMIN_HOST', port: 'ADMIN_PORT' };
  const url = await listen(server, hosts.listensOn, options.port, { settings: names }).catch(
    (error: unknown) => {
      part.close();
      throw error;
    },
  );
  return {
    url,
    close() {
      closing = true;
      part.close();
      return closeServer(server, graceMs, () => {});
    },
  };
}
