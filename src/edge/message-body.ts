/** Whether a request announces a body. Reads have none, so whoever announces one gets no further. */
import type { IncomingHttpHeaders } from 'node:http';

/** Even an empty chunked one counts (RFC 9112 section 6.3). */
export function announcesBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}
