/**
 * The client for TypeScript, `workspace-analytics-gateway/client`. It needs `fetch` alone, so that it runs in browsers
 * and in Node. It keeps nothing between two reads: the gateway and the browser have caches already.
 */
import { type Me, type Operations, operationPaths, type Problem, type ProblemCode } from './operations.ts';

export type { Me, Operations, Problem, ProblemCode } from './operations.ts';

/** The name of a read that every gateway has, or the path of another one below the base address: `/analytics/posts/`. */
export type Operation = keyof Operations | `/${string}`;

/** What the answer of a read holds; `unknown` where the upstream's specification does not show it. */
export type DataOf<Name extends Operation> = Name extends keyof Operations ? Operations[Name] : unknown;

export interface ClientOptions {
  /** The gateway's base address with its path: `https://gateway.example.com/api`. In a page also `/api`. */
  readonly baseUrl: string;
  /** The caller's token, or a function that is asked for it before each request. None for an anonymous caller. */
  readonly token?: string | AskToken | undefined;
  /** How long one read may wait in all, in ms, where `Retry-After` says that waiting helps. Default: 30 s. */
  readonly maxWaitMs?: number | undefined;
  /** What to send with instead of `globalThis.fetch`. */
  readonly fetch?: Fetch | undefined;
}

/**
 * Gives the token. After a 401 it is asked once more, and where it gives another one the request is sent again.
 *
 * @param refused the token that was refused: one that is kept has to be renewed
 */
export type AskToken = (refused?: string) => string | Promise<string>;

/** What the client needs of `fetch`. */
export type Fetch = (
  url: string,
  init: {
    readonly headers: Record<string, string>;
    readonly redirect: 'error';
    readonly signal: AbortSignal | null;
  },
) => Promise<Response>;

export interface ReadOptions<Data = unknown> {
  readonly query?: URLSearchParams | Readonly<Record<string, string | number | boolean>> | undefined;
  /** Further request fields, such as `Cache-Control`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Ends the read, its waiting included. */
  readonly signal?: AbortSignal | undefined;
  /** An earlier answer to the same read: its data is used again where the gateway says that it still holds. */
  readonly previous?: Answer<Data> | undefined;
}

export interface Answer<Data> {
  readonly data: Data;
  /** 304 where `data` is that of the previous answer. */
  readonly status: number;
  /** How the answer came about: `Cache-Status`, `Age`, `ETag`, `RateLimit`, `X-Request-ID`. */
  readonly headers: Headers;
  /** What was asked for, its query included. */
  readonly url: string;
}

export interface Client {
  /**
   * Reads, and where the gateway says `Retry-After`, waits that long and sends again.
   *
   * @throws GatewayProblem where the gateway failed
   * @throws AnswerError for another status of 400 and above, such as the upstream's own, and for what is not JSON
   * @throws TypeError as `fetch` does where there is no answer at all, and for what is no operation or path
   * @throws the signal's reason
   */
  read<Name extends Operation>(
    operation: Name,
    options?: ReadOptions<DataOf<Name>>,
  ): Promise<Answer<DataOf<Name>>>;

  /** Asks the gateway what it knows of this caller: what it may do and where, what is left of its limits. As `read`. */
  me(options?: Pick<ReadOptions, 'headers' | 'signal'>): Promise<Answer<Me>>;
}

/** An answer that holds no data. Those of the upstream come as they are. */
export class AnswerError extends Error {
  override readonly name: string = 'AnswerError';
  readonly status: number;
  readonly headers: Headers;
  /** The value of the JSON, or else the text. */
  readonly body: unknown;
  /** How long waiting helps, in ms, where the answer says so. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, { status, headers }: Response, body: unknown) {
    super(message);
    this.status = status;
    this.headers = headers;
    this.body = body;
    this.retryAfterMs = retryAfterMs(headers);
  }
}

/** A failure of the gateway. `code` says which. */
export class GatewayProblem extends AnswerError {
  override readonly name = 'GatewayProblem';
  readonly problem: Problem;

  constructor(problem: Problem, response: Response) {
    super(
      `${problem.title} (${problem.code}). ${problem.detail} Request ${problem.requestId}.`,
      response,
      problem,
    );
    this.problem = problem;
  }

  get code(): ProblemCode {
    return this.problem.code;
  }
}

/** Makes a client of one gateway for one caller. It sends nothing yet. */
export function createClient(options: ClientOptions): Client {
  const { token, maxWaitMs = 30_000, fetch = (url, init) => globalThis.fetch(url, init) } = options;
  const base = options.baseUrl.replace(/\/+$/, '');

  async function ask<Data>(
    url: string,
    name: string,
    { headers, signal, previous }: ReadOptions<Data>,
  ): Promise<Answer<Data>> {
    const etag = previous?.url === url ? previous.headers.get('etag') : null;
    let leftMs = maxWaitMs;
    let refusal: AnswerError | undefined;
    let refused: string | undefined;
    for (;;) {
      const credential = typeof token === 'function' ? await token(refused) : token;
      if (refusal !== undefined && credential === refused) throw refusal;
      const fields = new Headers(headers);
      fields.set('Accept', 'application/json');
      if (credential) fields.set('Authorization', `Bearer ${credential}`);
      if (etag) fields.set('If-None-Match', etag);
      const response = await fetch(url, {
        headers: Object.fromEntries(fields),
        // The gateway sends none, and a token must not follow one.
        redirect: 'error',
        signal: signal ?? null,
      });
      if (response.status === 304 && etag && previous) {
        return { data: previous.data, status: 304, headers: response.headers, url };
      }
      const answer = await answerOf<Data>(response, url, name);
      if (!(answer instanceof AnswerError)) return answer;
      if (answer.status === 401 && refusal === undefined && typeof token === 'function') {
        refusal = answer;
        refused = credential;
        continue;
      }
      const waitMs = answer.retryAfterMs;
      if (waitMs === undefined || waitMs > leftMs) throw answer;
      leftMs -= waitMs;
      await wait(waitMs, signal);
    }
  }

  return {
    async read(operation, options = {}) {
      return ask(`${base}${pathOf(operation)}${queryOf(options.query)}`, operation, options);
    },
    // It stands beside the base addresses.
    me: (options = {}) => ask<Me>(`${base.replace(/(?:\/w\/[^/]+)?\/api$/, '')}/me`, '/me', options),
  };
}

/** A path with other characters would reach the gateway as another one: `fetch` takes `..` and `#` out. */
const plainPath = /^(?:\/(?!\.{1,2}(?:\/|$))[\w.~-]+)+\/?$/;

function pathOf(operation: Operation): string {
  const path = operation.startsWith('/') ? operation : operationPaths[operation as keyof Operations];
  if (!plainPath.test(path)) throw new TypeError(`${operation} is no operation, and no path of one`);
  return path;
}

function queryOf(query: ReadOptions['query']): string {
  // It makes strings of other values itself, which its type does not say.
  const text = new URLSearchParams(query as Record<string, string>).toString();
  return text === '' ? '' : `?${text}`;
}

async function answerOf<Data>(
  response: Response,
  url: string,
  name: string,
): Promise<Answer<Data> | AnswerError> {
  const { ok, status, headers } = response;
  const text = await response.text();
  let data: unknown = text;
  try {
    data = JSON.parse(text);
    if (ok) return { data: data as Data, status, headers, url };
  } catch {
    // What is not JSON is an error below, whatever its status.
  }
  if (isProblem(data)) return new GatewayProblem(data, response);
  const what = ok ? 'is not JSON' : `has the status ${status} and is no problem of the gateway`;
  // The upstream's own words, where it has some: its specification does not show them.
  const { detail } = (data ?? {}) as { readonly detail?: unknown };
  const words = typeof detail === 'string' ? `: ${detail.slice(0, maxDetailCharacters)}` : '.';
  const id = headers.get('x-request-id');
  const request = id === null ? '' : ` Request ${id}.`;
  return new AnswerError(`The answer of ${name} ${what}${words}${request}`, response, data);
}

const maxDetailCharacters = 500;

function isProblem(body: unknown): body is Problem {
  const problem = body as Partial<Problem> | null;
  return typeof problem?.code === 'string' && problem.type === `/problems/${problem.code}`;
}

/** `Retry-After` in either of its forms (RFC 9110 section 10.2.3): a second at least, and no more than a timer takes. */
function retryAfterMs(headers: Headers): number | undefined {
  const value = headers.get('retry-after') ?? '';
  const isDate = value.endsWith(' GMT');
  if (!isDate && !/^\d+$/.test(value)) return undefined;
  const ms = isDate ? Date.parse(value) - Date.now() : Number(value) * 1_000;
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 1_000), 2 ** 31 - 1);
}

function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
