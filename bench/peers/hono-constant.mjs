/** Hono on @hono/node-server with a handler that returns a constant: what the gateway's framework costs. */
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { constantBody } from './constant.mjs';

const headers = { 'content-type': 'application/json', 'content-length': String(constantBody.length) };
const app = new Hono();
app.all('/api/*', () => new Response(constantBody, { status: 200, headers }));
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => {
  process.stdout.write(`${JSON.stringify({ port })}\n`);
});
process.on('SIGTERM', () => process.exit(0));
