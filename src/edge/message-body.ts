/** Whether a request announces a body. Reads have none, so such a request is refused. */
import type { IncomingHttpHeaders } from 'node:http';

/** True for an empty chunked body too (RFC 9112 section 6.3). */
export function announcesBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}
