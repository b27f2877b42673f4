/**
 * The second listener: metrics, status, console, purge. It shares the event loop with the callers' listener, so nothing
 * it does grows with what is stored, but a purge. What only it needs is loaded when it is first asked for.
 *
 * It stands on the same server and the same layers as the callers' one; what is thrown becomes the same problems.
 */
import { answerThrough } from '../edge/adapter.ts';
import { serveDocument } from '../edge/documents.ts';
import { listOf } from '../edge/head.ts';
import { soleHost } from '../edge/host-policy.ts';
import type { InboundRequest, Reply } from '../edge/inbound.ts';
import { announcesBody } from '../edge/message-body.ts';
import { renderProblems } from '../edge/problems.ts';
import { documentFields, listed, problemFields } from '../edge/reply-fields.ts';
import { identifyRequest } from '../edge/request-id.ts';
import { closeServer, createPublicServer, listen } from '../edge/server.ts';
import { GatewayError } from '../errors.ts';
import { andThen, compose, type Eventually, type Layer } from '../layer.ts';
import { bufferOf, latin1Of } from '../payload.ts';
import { type AdminHosts, isAdminHost, isOthersPage } from './access-policy.ts';
import { gatherFacts } from './facts.ts';
import { maxCallers } from './request-counts.ts';
import type { AdminSources } from './sources.ts';

export interface AdminOptions {
  readonly sources: AdminSources;
  readonly hosts: AdminHosts;
  readonly port: number;
  /** Replaces every form of the upstream key in a text: the last step before anything leaves. */
  readonly redact: (text: string) => string;
  onPurge(purged: Purged): void;
  onRefused(code: string, reason: string): void;
  onTrouble(error: unknown): void;
}

export interface Purged {
  /** Left out where everything went. */
  readonly operation?: string;
  /** Reads that were held, and what they took. */
  readonly entries: number;
  readonly bytes: number;
}

export interface Admin {
  /** Where it can be reached. */
  readonly url: string;
  close(): Promise<void>;
}

/** Scrapers, a console or two, and somebody with curl; few, for their descriptors are among the gateway's own. */
const maxConnections = 32;
const headersTimeoutMs = 10_000;
const stillMs = 60_000;
/** At the end, what is being answered gets this long. */
const graceMs = 500;

type Serve = (request: InboundRequest) => Eventually<Reply>;

interface Route {
  readonly method: 'GET' | 'POST';
  readonly serve: Serve;
}

/** @throws ListenError naming ADMIN_HOST or ADMIN_PORT */
export async function openAdmin(options: AdminOptions): Promise<Admin> {
  const { hosts, onTrouble } = options;
  const routes = routesOf(options);
  // No id is taken over: what somebody sends is never said again, also while no key is known to search for.
  const ownIds = identifyRequest(() => true);
  const handle = compose(
    [tellRefusals(options), searchReplies(options.redact), ownIds, renderProblems(), guardAccess(hosts)],
    (request, trace) => {
      const route = routes.get(request.path);
      if (route !== undefined) return serveRoute(route, request);
      if (request.path.startsWith('/problems/')) return serveDocument(request, trace);
      throw new GatewayError('unknown-operation', {
        detail: `The admin listener has ${[...routes.keys()].join(', ')}.`,
      });
    },
  );
  let closing = false;
  const server = createPublicServer(
    answerThrough(handle, { endsConnection: () => closing, onFault: onTrouble }),
    { headersTimeoutMs, maxConnections, stillMs },
    { onRefused: (_status, code) => options.onRefused(code, 'no request'), onTrouble },
  );
  const url = await listen(server, hosts.listensOn, options.port, { host: 'ADMIN_HOST', port: 'ADMIN_PORT' });
  return {
    url,
    close() {
      closing = true;
      return closeServer(server, graceMs, () => {});
    },
  };
}

function tellRefusals({ onRefused, onTrouble }: AdminOptions): Layer<InboundRequest, Reply> {
  return (next) =>
    function tell(request, trace) {
      return andThen(next(request, trace), (reply) => {
        const { failure } = trace;
        if (failure instanceof GatewayError) onRefused(failure.code, failure.message);
        else if (failure !== undefined) onTrouble(failure);
        return reply;
      });
    };
}

/** Searches what leaves for the key: byte for byte as Latin-1, as answers are searched too. */
function searchReplies(redact: (text: string) => string): Layer<InboundRequest, Reply> {
  return (next) =>
    function search(request, trace) {
      return andThen(next(request, trace), (reply) => {
        if (reply.body === null) return reply;
        const body = bufferOf(redact(latin1Of(reply.body)));
        const told = listOf(reply.fields);
        const at = told.indexOf('content-length');
        const fields = at === -1 ? told.slice() : told.toSpliced(at, 2);
        fields.push('content-length', String(body.length));
        return { status: reply.status, fields, body: request.method === 'HEAD' ? null : body };
      });
    };
}

function guardAccess(hosts: AdminHosts): Layer<InboundRequest, Reply> {
  return (next) =>
    function guard(request, trace) {
      const host = soleHost(request.rawHeaders);
      if (!isAdminHost(host, hosts)) {
        throw new GatewayError('host-not-allowed', {
          reason: 'a Host that the admin listener does not answer for',
          detail:
            'The admin listener answers for addresses and private names; README, "Watching it", has the rule.',
        });
      }
      const asked = {
        method: request.method,
        path: request.path,
        host,
        origin: request.field('origin'),
        site: request.field('sec-fetch-site'),
        mode: request.field('sec-fetch-mode'),
        dest: request.field('sec-fetch-dest'),
      };
      if (isOthersPage(asked)) {
        throw new GatewayError('origin-not-allowed', {
          reason: 'a page of another site asked the admin listener',
          detail: 'Pages of other sites may not use the admin listener.',
        });
      }
      return next(request, trace);
    };
}

function serveRoute({ method, serve }: Route, request: InboundRequest): Eventually<Reply> {
  if (request.method !== method && !(method === 'GET' && request.method === 'HEAD')) {
    const allow = method === 'GET' ? 'GET, HEAD' : method;
    throw new GatewayError('method-not-allowed', { headers: { allow }, detail: `Use ${allow}.` });
  }
  if (announcesBody(request.headers)) {
    throw new GatewayError('invalid-request', {
      detail: 'Nothing here takes a body.',
      headers: { connection: 'close' },
    });
  }
  return serve(request);
}

function routesOf(options: AdminOptions): ReadonlyMap<string, Route> {
  const { sources } = options;
  return new Map<string, Route>([
    [
      '/',
      {
        method: 'GET',
        serve: async () => {
          const { consolePage, consoleFields } = await import('./console-page.ts');
          return { status: 200, fields: listed(consoleFields), body: Buffer.from(consolePage) };
        },
      },
    ],
    [
      '/status',
      {
        method: 'GET',
        serve: async () => {
          const { statusOf } = await import('./status-policy.ts');
          const status = statusOf(await gatherFacts(sources, maxCallers), sources);
          return json(status);
        },
      },
    ],
    [
      '/metrics',
      {
        method: 'GET',
        serve: async () => {
          const [{ metricFamilies }, { exposition, expositionType }] = await Promise.all([
            import('./metrics-policy.ts'),
            import('./exposition-policy.ts'),
          ]);
          const text = exposition(metricFamilies(await gatherFacts(sources, 0)));
          return {
            status: 200,
            fields: listed({ ...documentFields, 'content-type': expositionType }),
            body: Buffer.from(text),
          };
        },
      },
    ],
    ['/cache/purge', { method: 'POST', serve: (request) => purge(request, options) }],
    ['/livez', { method: 'GET', serve: () => probe(undefined) }],
    ['/readyz', { method: 'GET', serve: () => probe(sources.notReady()) }],
  ]);
}

function purge({ query }: InboundRequest, { sources, onPurge }: AdminOptions): Reply {
  const [[name, operation] = [], ...more] = [...new URLSearchParams(query)];
  if (more.length > 0 || (name !== undefined && name !== 'operation')) {
    throw new GatewayError('invalid-request', { detail: 'A purge takes ?operation=NAME, once, or nothing.' });
  }
  if (operation !== undefined && !sources.operations.includes(operation)) {
    throw new GatewayError('unknown-operation', {
      detail: `There is no such operation. Known: ${sources.operations.join(', ')}.`,
    });
  }
  const before = sources.cache().bytes;
  const entries = sources.purge(operation);
  const purged = {
    ...(operation === undefined ? {} : { operation }),
    entries,
    bytes: before - sources.cache().bytes,
  };
  onPurge(purged);
  return json(purged);
}

function probe(problem: string | undefined): Reply {
  return {
    status: problem === undefined ? 200 : 503,
    fields: listed(documentFields),
    body: Buffer.from(`${problem ?? 'ok'}\n`),
  };
}

function json(value: unknown): Reply {
  return {
    status: 200,
    fields: listed({ ...problemFields, 'content-type': 'application/json' }),
    body: Buffer.from(`${JSON.stringify(value)}\n`),
  };
}
