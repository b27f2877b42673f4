/** Node's own server answering from memory and doing nothing else: what the parser and the socket cost. */
import { createServer } from 'node:http';
import { constantBody } from './constant.mjs';

const server = createServer((_request, response) => {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': constantBody.length });
  response.end(constantBody);
});
server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`${JSON.stringify({ port: server.address().port })}\n`);
});
process.on('SIGTERM', () => process.exit(0));
