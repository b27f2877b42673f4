/** All that the admin listener says, asked in every way that could make it repeat a secret. */
import type { TestGateway } from './gateway.ts';

/** @param secret put wherever a client can put something */
export async function adminOutput(
  { askAdmin }: Pick<TestGateway, 'askAdmin'>,
  secret: string,
): Promise<string> {
  const headers = { 'x-api-key': secret, authorization: `Bearer ${secret}`, 'x-request-id': secret };
  const asked = [
    ...['/metrics', '/status', '/', '/livez', '/readyz', '/none'].map((path) => askAdmin(path, { headers })),
    askAdmin(`/status?${secret}`),
    askAdmin(`/${secret}`),
    askAdmin(`/problems/${secret}`),
    askAdmin(`/cache/purge?operation=${secret}`, { method: 'POST' }),
    askAdmin(`/cache/purge?${secret}`, { method: 'POST' }),
    askAdmin('/status', { headers: { host: `${secret}.example` } }),
    askAdmin('/status', { headers: { origin: `https://${secret}` } }),
    askAdmin('/metrics', { method: 'DELETE', headers }),
  ];
  const came = await Promise.all(asked);
  return came
    .map(({ status, rawHeaders, body }) => `${status}\n${rawHeaders.join('\n')}\n${body}`)
    .join('\n');
}
