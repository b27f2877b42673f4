/** Routes of your own beside the gateway's, as in any Hono program. CONTRIBUTING shows one. */
import type { Hono, MiddlewareHandler } from 'hono';
import type { Bindings } from './edge/adapter.ts';

/** Middleware that does for a route what the gateway does for its own. A route takes one of them, before any other. */
export interface RouteChecks {
  /** A request id, a log line, problems, CORS, and the checks of host and origin. */
  readonly checked: MiddlewareHandler<Bindings>;
  /** The same, and a caller that authenticates and keeps within its limit. */
  readonly forCallers: MiddlewareHandler<Bindings>;
}

export type AddRoutes = (app: Hono<Bindings>, checks: RouteChecks) => void;

/**
 * Called once, after the gateway's own routes. A route without a check is open to every client that reaches the port.
 * A route gets no way to the upstream: what asks it is an operation (`operations.ts`).
 */
export const addRoutes: AddRoutes = () => {
  // app.get('/hello', checks.forCallers, (context) => context.text(`hello ${context.get('caller')}`));
};
