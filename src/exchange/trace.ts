/**
 * The facts of one request: written by the layers as they learn them, read once at the edge for the log line
 * and the headers that show the caller how its answer came about.
 */

/** How the cache took part, in the words of RFC 9211. */
export interface CacheOutcome {
  /** Answered from memory, without waiting for the upstream. */
  readonly hit: boolean;
  /** Why the request went forward (RFC 9211 section 2.2), when it did. */
  readonly forwarded?: 'bypass' | 'uri-miss' | 'vary-miss' | 'request' | 'stale';
  /** The status the upstream answered with, where it differs from what the caller gets (304, 429, 500). */
  readonly forwardStatus?: number;
  /** The answer was stored. */
  readonly stored?: boolean;
  /** This request shared another's flight (`true`), or tried to and could not (`false`). */
  readonly collapsed?: boolean;
  /** Seconds of freshness left; negative when stale. */
  readonly ttlSeconds?: number;
  /** A token that says more: `stale-while-revalidate`, `stale-if-error`, `negative`. */
  readonly detail?: string;
}

/** Where a request waits: for its turn at the gate, or before a retry. */
export type WaitingPlace = 'gate' | 'retry';

/** The span of one request in a distributed trace; `log/tracing.ts` makes it, where spans are exported. */
export interface RequestSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Two hexadecimal digits. */
  readonly traceFlags: string;
  /** The request waited. Times are monotonic, in ms. */
  waited(place: WaitingPlace, fromMs: number, untilMs: number): void;
}

/** The span of one upstream attempt. */
export interface AttemptSpan {
  /** For the upstream, so that its own spans belong below this one (W3C Trace Context). */
  readonly traceParent: string;
  /** @param outcome the status, a problem's code, or `abandoned` */
  end(outcome: string): void;
}

/** Makes the spans of attempts. */
export interface AttemptSpans {
  /** @param isBackground no request waits for it */
  beginAttempt(trace: Trace, operation: string, isBackground: boolean): AttemptSpan;
}

export class Trace {
  /** The caller's own `X-Request-ID` where it is fit to be one, else ours. */
  requestId = '';
  /** The caller's own `traceparent` where it is valid and holds no credential, in the form that may go up. */
  traceParent: string | undefined = undefined;
  /** When the request arrived, on the monotonic clock (`performance.now()`), in ms. */
  readonly startedMs: number;
  /** The caller's name, once it is authenticated. */
  caller: string | undefined = undefined;
  /** Of a JWT: who its issuer says it is about. */
  subject: string | undefined = undefined;
  /** How the caller was authenticated: `token`, `jwt`, `fly`, `anonymous`. */
  authenticatedBy: string | undefined = undefined;
  /** What an operator may want to know of the caller, as that an older token is still in use. */
  note: string | undefined = undefined;
  /** The codes of the problems that rules of this caller, which are not enforced yet, would have made, between blanks. */
  would: string | undefined = undefined;
  /** The workspace's name, once the caller is known to be granted it; `undefined` for the unnamed one. */
  workspace: string | undefined = undefined;
  /** The operation's name, once matched. */
  operation: string | undefined = undefined;
  cache: CacheOutcome | undefined = undefined;
  /** Age of the answer in whole seconds (RFC 9111 section 5.1), when it came through the cache's store. */
  ageSeconds: number | undefined = undefined;
  /** Attempts sent upstream for this request. */
  attempts = 0;
  /** Time spent waiting between attempts and for turns, in ms. */
  waitedMs = 0;
  /** Time spent in attempts, in ms. */
  upstreamMs = 0;
  /** The last status the upstream gave, whatever the caller got. */
  upstreamStatus: number | undefined = undefined;
  /** The key generation the answer was fetched with. */
  generation: number | undefined = undefined;
  /** What the gate was doing when it let the attempt go or refused it: `open`, `paced`, `closed`, `trial`. */
  gate: string | undefined = undefined;

  /** Where spans are exported, its own one. */
  span: RequestSpan | undefined = undefined;
  /** Of the request whose exchange this one has joined. */
  joined: Trace | undefined = undefined;

  /** Why the caller got a problem instead of an answer. For the log. */
  failure: unknown = undefined;

  constructor(startedMs: number) {
    this.startedMs = startedMs;
  }

  /** The id of the distributed trace that the request belongs to (W3C Trace Context section 3.2.2.3). */
  get traceId(): string | undefined {
    return this.span?.traceId ?? this.traceParent?.slice(3, 35);
  }

  /** Of that trace (section 3.2.2.5): two hexadecimal digits. */
  get traceFlags(): string | undefined {
    return this.span?.traceFlags ?? this.traceParent?.slice(53, 55);
  }

  /** The request has waited until now. @param fromMs since when, on the monotonic clock */
  waited(place: WaitingPlace, fromMs: number): void {
    const nowMs = performance.now();
    this.waitedMs += nowMs - fromMs;
    this.span?.waited(place, fromMs, nowMs);
  }
}
