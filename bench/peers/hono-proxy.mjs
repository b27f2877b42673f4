/** Hono's own `proxy` helper, over the runtime's fetch. */
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { proxy } from 'hono/proxy';
import { newRequestId, recognise, tellPort, upstream, upstreamKey, writeAccess } from './work.mjs';

const app = new Hono();
app.get('/api/*', async (context) => {
  const startedMs = performance.now();
  const { url, method } = context.req.raw;
  const caller = recognise(context.req.header('authorization'));
  if (caller === undefined) return context.text('', 401);
  const target = url.slice(url.indexOf('/api'));
  const response = await proxy(`${upstream}${target}`, {
    headers: { accept: 'application/json', 'x-api-key': upstreamKey },
  });
  writeAccess(newRequestId(), caller, method, '/api', response.status, startedMs);
  return response;
});
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => tellPort(port));
