/** http-proxy-3 on Node's own client with kept connections. */
import { Agent, createServer } from 'node:http';
import httpProxy from 'http-proxy-3';
import { newRequestId, recognise, tellPort, upstream, upstreamKey, writeAccess } from './work.mjs';

const proxy = httpProxy.createProxyServer({
  target: upstream,
  agent: new Agent({ keepAlive: true, maxSockets: 64 }),
});
proxy.on('proxyReq', (outgoing) => {
  outgoing.removeHeader('authorization');
  outgoing.setHeader('x-api-key', upstreamKey);
});
const server = createServer((request, response) => {
  const startedMs = performance.now();
  const caller = recognise(request.headers.authorization);
  if (caller === undefined) {
    response.writeHead(401).end();
    return;
  }
  response.on('finish', () =>
    writeAccess(newRequestId(), caller, request.method, '/api', response.statusCode, startedMs),
  );
  proxy.web(request, response);
});
server.listen(0, '127.0.0.1', () => tellPort(server.address().port));
