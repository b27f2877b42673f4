/**
 * `explain`: whether a request of a caller would pass, which rule decides, and what would go up. The request goes through
 * the very layers of a gateway with these settings, up to where it would be sent: nothing is sent, and no key is opened.
 */
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { inboundLayers, inboundRules } from '../app.ts';
import { writtenLimit } from '../callers/bucket.ts';
import type { Authenticated } from '../callers/caller.ts';
import { type CallersVersion, readCallersVersion } from '../callers/caller-store.ts';
import { type CallerEntry, callersFileRules, unnamedWritten } from '../callers/callers-file.ts';
import { unauthenticated } from '../callers/failures.ts';
import { CallerLimits } from '../callers/limit.ts';
import { type Config, readConfig } from '../config/config.ts';
import { nearestOfAll } from '../config/misspellings.ts';
import { forward } from '../edge/forward.ts';
import { type EdgeWorkspace, InboundRequest, type Reply } from '../edge/inbound.ts';
import { baseOf, baseOfWorkspace, usualBase } from '../edge/operation.ts';
import { GatewayError, problems, SettingError } from '../errors.ts';
import type { UpstreamRequest } from '../exchange/exchange.ts';
import { compose, type Layer } from '../exchange/layer.ts';
import { Trace } from '../exchange/trace.ts';
import { transportOptions } from '../gateway/workspace.ts';
import { operationsOf } from '../operations.ts';
import { constantFields, upstreamFields } from '../upstream/transport.ts';
import { loadWhatThereIs } from './environment.ts';
import type { TokenIo } from './token-file.ts';

export interface ExplainOptions {
  readonly caller: string;
  readonly method: string;
  /** As callers send it, with its query: `/api/analytics/accounts/`. */
  readonly path: string;
  /** `--origin`: that of the page which sends it. */
  readonly origin?: string | undefined;
  /** `--workspace`; `-` is the unnamed one. */
  readonly workspace?: string | undefined;
  readonly json: boolean;
  /** `--file`: the callers file, in place of CALLERS_FILE. */
  readonly file?: string | undefined;
  readonly envFile?: string | undefined;
}

export interface Explanation {
  readonly passes: boolean;
  readonly caller: string;
  readonly method: string;
  readonly path: string;
  /** What the caller gets instead of an answer. */
  readonly problem: { readonly code: string; readonly status: number; readonly detail: string } | null;
  /** The layer that refuses, as `selectOperation`, and why, as it stands in the log. */
  readonly decidedBy: string | null;
  readonly reason: string | null;
  /** The problem that would be made if the callers file enforced the caller's rules. */
  readonly would: string | null;
  /** What an operator can do about it. */
  readonly todo: string | null;
  readonly operation: string | null;
  readonly workspace: string | null;
  readonly limits: readonly string[];
  readonly weight: number;
  /** What goes up where no stored answer serves. */
  readonly upstream: {
    readonly method: 'GET';
    readonly url: string;
    readonly fields: Readonly<Record<string, string>>;
  } | null;
}

/** @returns the exit status: 0 it would pass, 1 it would not, 2 wrong usage or settings */
export async function explain(options: ExplainOptions, io: TokenIo): Promise<0 | 1 | 2> {
  try {
    const { file, envFile } = options;
    const config = readConfig({ ...(await loadWhatThereIs(envFile)), ...(file && { CALLERS_FILE: file }) });
    const explanation = explainRequest(config, readVersion(config), options);
    io.stdout(options.json ? `${JSON.stringify(explanation, null, 2)}\n` : inWords(explanation));
    return explanation.passes ? 0 : 1;
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    io.stderr(error.problems.map((problem) => `${problem}\n`).join(''));
    return 2;
  }
}

function readVersion(config: Config): CallersVersion {
  const names = config.workspaces.map(({ name }) => name);
  return readCallersVersion({
    ...callersFileRules(config, operationsOf(config), names),
    file: config.CALLERS_FILE,
  });
}

/** @throws SettingError for a caller, path or workspace that cannot be meant */
export function explainRequest(
  config: Config,
  { table }: CallersVersion,
  { caller: name, method: written, origin, ...asked }: Omit<ExplainOptions, 'json' | 'envFile'>,
): Explanation {
  const caller = table.callers.find((one) => one.name === name);
  if (caller === undefined) {
    const names = table.callers.map((one) => one.name);
    const hint =
      config.CALLERS_FILE === undefined
        ? ', because CALLERS_FILE is not set: name the callers file with --file'
        : nearestOfAll(name, names);
    throw new SettingError(`there is no caller ${JSON.stringify(name)}${hint}`);
  }
  const method = written.toUpperCase();
  const path = pathIn(config, asked);
  const isAnonymous = table.anonymous?.caller === caller;
  const authenticated: Authenticated = { caller, by: isAnonymous ? 'anonymous' : 'token' };
  const nameInFile = asked.file === undefined ? name : `${name} --file ${asked.file}`;
  const entry = table.entries.find((one) => one.name === name);
  const authenticate = (): Authenticated => {
    if (entry !== undefined && hasEnded(entry)) throw unauthenticated('all its tokens have ended', true);
    return authenticated;
  };
  const trial = new Trial(config, authenticate, table.anonymous !== undefined);
  // Before a request with a credential, a browser asks whether the page may send it.
  const asksBefore = origin !== undefined && !isAnonymous;
  if (asksBefore) trial.send('OPTIONS', path, origin, { 'access-control-request-method': method });
  if (trial.failure === undefined) trial.send(method, path, origin);
  const { failure, trace, sent } = trial;
  return {
    passes: failure === undefined,
    caller: name,
    method,
    path,
    problem: failure === undefined ? null : problemOf(failure),
    decidedBy: failure === undefined ? null : trial.decidedBy,
    reason: failure?.message ?? null,
    would: trace.would ?? null,
    todo: todoFor(trace.would ?? failure?.code, nameInFile, trace.operation, asked.workspace, path),
    operation: trace.operation ?? null,
    workspace: trace.workspace ?? null,
    limits: (caller.limits ?? []).map(writtenLimit),
    weight: caller.weight,
    upstream: sent === undefined ? null : goesUp(config, trace.workspace ?? '', sent),
  };
}

/** Whether no request can be of this caller any more. */
function hasEnded({ tokens, jwt, fly, anonymous }: CallerEntry): boolean {
  const now = Date.now();
  return !anonymous && jwt === undefined && fly === undefined && tokens.every((one) => one.expiresAt <= now);
}

/** A request that comes to the last layer: it would be sent. */
class WouldSend extends Error {
  readonly request: UpstreamRequest;

  constructor(request: UpstreamRequest) {
    super('would be sent');
    this.request = request;
  }
}

/** Writes, counts and renders; decides nothing. */
const notDeciding = ['logAccess', 'renderProblems', 'limitBufferedResponses'];

/** The inbound layers of a gateway, without one. */
class Trial {
  failure: GatewayError | undefined;
  decidedBy: string | null = null;
  sent: UpstreamRequest | undefined;
  trace = new Trace(0);
  readonly #handler: (request: InboundRequest, trace: Trace) => unknown;
  readonly #host: string;
  readonly #names: readonly string[];
  /** The layers that let the request through. */
  readonly #passed: string[] = [];

  constructor(config: Config, authenticate: () => Authenticated, admitsAnonymous: boolean) {
    const authenticator = {
      authenticate,
      credentialsOf: () => [],
      anonymous: undefined,
      admitsAnonymous,
      credentialHeaders: [],
    };
    const send: EdgeWorkspace['send'] = (request) => {
      throw new WouldSend(request);
    };
    const rules = inboundRules(config, authenticator);
    const layers = inboundLayers({
      ...rules,
      authenticator,
      workspaces: new Map(config.workspaces.map(({ name }) => [name, { name, send }])),
      limits: new CallerLimits(),
      bufferedResponses: { maxBytes: 0, withinMs: 0, onUnread: () => {} },
      accessLog: { begin: () => {}, write: () => {}, isSecret: () => false },
      holdsKey: () => false,
    });
    const deciding = Object.entries(layers.operations).filter(([name]) => !notDeciding.includes(name));
    const noted = deciding.map(
      ([name, layer]): Layer<InboundRequest, Reply> =>
        (next) =>
          layer((request, trace) => {
            this.#passed.push(name);
            return next(request, trace);
          }),
    );
    this.#handler = compose(
      noted,
      forward(rules.forward, () => false),
    );
    this.#names = deciding.map(([name]) => name);
    this.#host = config.ALLOWED_HOSTS?.[0] ?? 'localhost';
  }

  send(method: string, url: string, origin: string | undefined, more: Record<string, string> = {}): void {
    const incoming = new IncomingMessage(new Socket());
    const headers = { host: this.#host, ...(origin !== undefined && { origin }), ...more };
    Object.assign(incoming, { method, url, headers, rawHeaders: Object.entries(headers).flat() });
    const request = new InboundRequest(incoming, new ServerResponse(incoming), () => undefined);
    this.trace = new Trace(performance.now());
    this.#passed.length = 0;
    try {
      this.#handler(request, this.trace);
    } catch (error) {
      if (error instanceof WouldSend) this.sent = error.request;
      else if (error instanceof GatewayError) {
        this.failure = error;
        this.decidedBy = this.#names.find((name) => !this.#passed.includes(name)) ?? 'forward';
      } else throw error;
    }
  }
}

function pathIn(config: Config, { path, workspace }: Pick<ExplainOptions, 'path' | 'workspace'>): string {
  const base = baseOf(path.split('?', 1)[0] ?? '');
  if (base === undefined) {
    throw new SettingError(
      `the path begins with ${usualBase}/ or /w/<workspace>${usualBase}/, as callers send it`,
    );
  }
  if (base.name !== undefined && config.workspaces.every(({ name }) => name === '')) {
    throw new SettingError('the path names a workspace, and no workspace of this gateway has a name');
  }
  if (workspace === undefined) return path;
  const names = config.workspaces.map(({ name }) => name || unnamedWritten);
  if (!names.includes(workspace)) {
    const nearest = nearestOfAll(workspace, names);
    throw new SettingError(`--workspace ${JSON.stringify(workspace)} is not a workspace${nearest}`);
  }
  if (!path.startsWith(usualBase)) {
    throw new SettingError('--workspace stands beside a path that names a workspace already');
  }
  return baseOfWorkspace(workspace === unnamedWritten ? '' : workspace) + path.slice(usualBase.length);
}

function problemOf({ code, status, detail }: GatewayError): Explanation['problem'] {
  return { code, status, detail: detail ?? problems[code].help };
}

function todoFor(
  code: string | undefined,
  caller: string,
  operation: string | undefined,
  workspace: string | undefined,
  path: string,
): string | null {
  const place = workspace ?? baseOf(path)?.name ?? 'WORKSPACE';
  switch (code) {
    case 'caller-forbidden':
      return operation === undefined
        ? `analytics-gateway token set ${caller} --workspace ${place}, with those that it has already`
        : `analytics-gateway token grant ${caller} ${operation}`;
    case 'caller-unauthenticated':
      return `analytics-gateway token create ${caller}`;
    case 'origin-not-allowed':
      return 'add the origin to CORS_ORIGINS, exactly as browsers send it';
    case 'unknown-operation':
      return 'add the path to UPSTREAM_READS, if it is a read of the upstream';
    default:
      return null;
  }
}

function goesUp(config: Config, workspace: string, request: UpstreamRequest): Explanation['upstream'] {
  const own = config.workspaces.find(({ name }) => name === workspace);
  if (own === undefined) return null;
  const { baseUrl, userAgent } = transportOptions(config, own, 1);
  const signed = { ...request, key: '(the key)', generation: 0 };
  const ids = { ...request.ids, 'x-request-id': '(an id)' };
  const fields = upstreamFields(signed, ids, constantFields(userAgent));
  return {
    method: 'GET',
    url: `${baseUrl.href.replace(/\/$/, '')}${request.path}${request.query}`,
    fields: Object.fromEntries(
      fields.flatMap((name, index) => (index % 2 === 0 ? [[name, fields[index + 1] ?? '']] : [])),
    ),
  };
}

/** Where an operator finds the rule. */
const ruleOf: Readonly<Record<string, string>> = {
  'caller-unauthenticated': 'the tokens of the callers file',
  'caller-forbidden': 'the grants of the callers file',
  'origin-not-allowed': 'CORS_ORIGINS',
  'unknown-operation': 'the reads of the gateway',
};

function inWords(explanation: Explanation): string {
  const { caller, method, path, problem, reason, would, todo, limits, weight, upstream } = explanation;
  const lines: [string, string][] = [];
  if (problem !== null) {
    lines.push(
      ['decides', `${ruleOf[problem.code] ?? 'a rule for all requests'}: ${reason}`],
      ['the caller gets', `${problem.status} ${problem.code}: ${problem.detail}`],
    );
  }
  if (would !== null) lines.push(['would be', `${would}, if the callers file did not say "enforce": false`]);
  if (todo !== null) lines.push(['to allow it', todo]);
  if (explanation.operation !== null) lines.push(['operation', explanation.operation]);
  if (explanation.workspace !== null) lines.push(['workspace', explanation.workspace]);
  lines.push(['limits', `${limits.join(', ') || 'none'}; weight ${weight} (GET /me tells what is left)`]);
  if (upstream !== null) {
    lines.push(['goes up', `${upstream.method} ${upstream.url}`]);
    for (const [name, value] of Object.entries(upstream.fields)) lines.push(['', `${name}: ${value}`]);
  }
  const verdict = problem === null ? 'would pass' : 'would be refused';
  const width = Math.max(...lines.map(([name]) => name.length)) + 2;
  return `${method} ${path} of ${caller} ${verdict}.\n${lines.map(([name, text]) => `  ${name.padEnd(width)}${text}\n`).join('')}`;
}
