/**
 * The floor for passing through: Node's server and undici's `dispatch`, whole bodies, the key on the way up. Nothing is
 * recognised, checked or logged.
 */
import { createServer } from 'node:http';
// The gateway's own undici, not that of another peer.
import { Pool } from '../../node_modules/undici/index.js';
import { tellPort, upstream, upstreamKey } from './work.mjs';

const pool = new Pool(upstream, { connections: 64, pipelining: 1 });
const headers = { accept: 'application/json', 'x-api-key': upstreamKey };

/** Collects one answer, and sends it once it is whole. */
class WholeAnswer {
  #response;
  #status = 502;
  #type = '';
  #chunks = [];

  constructor(response) {
    this.#response = response;
  }

  onRequestStart() {}

  onResponseStart(_controller, status, fields) {
    this.#status = status;
    this.#type = fields['content-type'] ?? '';
  }

  onResponseData(_controller, chunk) {
    this.#chunks.push(chunk);
  }

  onResponseEnd() {
    const body = this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
    this.#response.writeHead(this.#status, { 'content-type': this.#type, 'content-length': body.length });
    this.#response.end(body);
  }

  onResponseError() {
    this.#response.writeHead(502);
    this.#response.end();
  }
}

const server = createServer((request, response) => {
  pool.dispatch({ path: request.url, method: 'GET', headers }, new WholeAnswer(response));
});
server.listen(0, '127.0.0.1', () => tellPort(server.address().port));
process.on('SIGTERM', () => process.exit(0));
