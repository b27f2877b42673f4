/** fastify with @fastify/http-proxy (fastify-reply-from on undici). */
import httpProxy from '@fastify/http-proxy';
import Fastify from 'fastify';
import { newRequestId, recognise, tellPort, upstream, upstreamKey, writeAccess } from './work.mjs';

const app = Fastify({ logger: false, genReqId: newRequestId });
await app.register(httpProxy, {
  upstream,
  prefix: '/api',
  rewritePrefix: '/api',
  http2: false,
  undici: { connections: 64, pipelining: 1 },
  async preHandler(request, reply) {
    request.startedMs = performance.now();
    request.caller = recognise(request.headers.authorization);
    if (request.caller === undefined) await reply.code(401).send();
  },
  replyOptions: {
    rewriteRequestHeaders(_request, headers) {
      return { host: headers.host, accept: 'application/json', 'x-api-key': upstreamKey };
    },
  },
});
app.addHook('onResponse', async (request, reply) => {
  writeAccess(request.id, request.caller, request.method, '/api', reply.statusCode, request.startedMs);
});
await app.listen({ port: 0, host: '127.0.0.1' });
tellPort(app.server.address().port);
