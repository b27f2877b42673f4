/** All that the admin listener says, asked in every way that could make it repeat a secret. */
import type { TestGateway } from './gateway.ts';

/**
 * Asks on one connection.
 *
 * @param secret put wherever a client can put something
 */
export async function adminOutput(
  { exchange, gateway }: Pick<TestGateway, 'exchange' | 'gateway'>,
  secret: string,
): Promise<string> {
  const fields = [`X-API-Key: ${secret}`, `Authorization: Bearer ${secret}`, `X-Request-ID: ${secret}`];
  const host = 'Host: localhost';
  const asked = [
    ...['/metrics', '/status', '/', '/livez', '/readyz', '/none'].map((path) => [
      `GET ${path}`,
      host,
      ...fields,
    ]),
    [`GET /status?${secret}`, host],
    [`GET /${secret}`, host],
    [`GET /problems/${secret}`, host],
    [`POST /cache/purge?operation=${secret}`, host],
    [`POST /cache/purge?${secret}`, host],
    ['GET /status', host, `Origin: https://${secret}`],
    ['DELETE /metrics', host, ...fields],
    ['GET /status', `Host: ${secret}.example`, 'Connection: close'],
  ];
  const requests = asked.map(([line, ...lines]) => `${[`${line} HTTP/1.1`, ...lines].join('\r\n')}\r\n\r\n`);
  const came = await exchange(requests.join(''), 5_000, Number(new URL(gateway.adminUrl ?? '').port));
  const replies = came.split('HTTP/1.1 ').length - 1;
  if (replies !== asked.length) throw new Error(`${replies} replies to ${asked.length} requests`);
  return came;
}
