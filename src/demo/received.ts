/** What reached the stand-in: the requests, kept within a bound, and how often what happened. */

/** One request as it arrived, and what became of it. */
export interface ReceivedRequest {
  readonly method: string;
  /** The request target in its exact bytes. */
  readonly target: string;
  /** Lower-case names; a field that came on several lines is a list. */
  readonly headers: Readonly<Record<string, string | string[]>>;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  /** When it arrived, monotonic ms. */
  readonly at: number;
  /** The value of `X-API-Key`; several lines are joined by a comma, which makes them no valid key. */
  readonly key: string | undefined;
  /** The status it was answered with; undefined before that, and where no status was sent. */
  readonly status: number | undefined;
}

export interface Counts {
  /** Requests received. */
  total: number;
  /** Requests by the status they were answered with. */
  byStatus: Record<number, number>;
  /** Connections accepted. */
  connections: number;
  /** Requests whose sender left before the answer was out. */
  aborted: number;
}

/** The most requests that are remembered; the oldest go, a thousand at a time. */
const maxRequests = 10_000;

export class Received implements ReceivedRequest {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly at: number;
  readonly key: string | undefined;
  status: number | undefined = undefined;
  #headers: Record<string, string | string[]> | undefined = undefined;

  constructor(
    method: string,
    target: string,
    rawHeaders: readonly string[],
    key: string | undefined,
    at: number,
  ) {
    this.method = method;
    this.target = target;
    this.rawHeaders = rawHeaders;
    this.key = key;
    this.at = at;
  }

  /** Made when first read: a benchmark that looks at no header does not pay for them. */
  get headers(): Readonly<Record<string, string | string[]>> {
    this.#headers ??= collect(this.rawHeaders);
    return this.#headers;
  }
}

/** Adds one, and forgets the oldest beyond the bound. The list stays the same object. */
export function remember(requests: ReceivedRequest[], request: ReceivedRequest): void {
  if (requests.push(request) > maxRequests) requests.splice(0, 1_000);
}

function collect(rawHeaders: readonly string[]): Record<string, string | string[]> {
  // Without a prototype: a field may be called `__proto__`.
  const headers: Record<string, string | string[]> = Object.create(null);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]?.toLowerCase() ?? '';
    const value = rawHeaders[index + 1] ?? '';
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (typeof before === 'string') headers[name] = [before, value];
    else before.push(value);
  }
  return headers;
}
