import { describe, expect, it } from 'vitest';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair } from '../support/gateway.ts';

describe('no link of an answer leads past the gateway', () => {
  it('a list is read to its end by its links, and the caller’s token never goes up', async () => {
    const { token, entry } = enrol('reports');
    const { ask, standIn, gateway } = await startWith([entry], {
      PUBLIC_BASE_URL: 'http://gateway.internal/',
    });
    standIn.behave(({ target }) => ({
      headers: { etag: '"v1"', link: `<${standIn.url}/analytics/accounts/?page=2>; rel="next"` },
      body: JSON.stringify({
        next: !target.includes('?') ? `${standIn.url}/analytics/accounts/?page=2` : null,
      }),
    }));
    const headers = bearer(token);
    const first = await ask(accounts, { headers });
    const next = String(first.json()['next']);
    expect(next).toBe('http://gateway.internal/api/analytics/accounts/?page=2');
    expect(first.headers['link']).toBe(`<${next}>; rel="next"`);
    const second = await ask(next.slice('http://gateway.internal'.length), { headers });
    expect([second.status, second.json()]).toEqual([200, { next: null }]);
    // Of the bytes as they came the upstream's tag is right, of others it is not.
    expect([first.headers.etag === '"v1"', second.headers.etag]).toEqual([false, '"v1"']);
    const held = await ask(accounts, {
      headers: { ...headers, 'if-none-match': String(first.headers.etag) },
    });
    expect(held.status).toBe(304);
    expect(standIn.requests).toHaveLength(2);
    expect(JSON.stringify(standIn.requests)).not.toContain(token);
    expect(gateway.waiting).toBe(0);
  });

  it('a workspace’s links lead to its own base address', async () => {
    const { ask, standIn } = await startPair({
      WORKSPACES: 'team-a',
      UPSTREAM_API_KEY_FROM_TEAM_A: 'env:UPSTREAM_API_KEY',
      PUBLIC_BASE_URL: 'https://gateway.internal/analytics',
    });
    standIn.behave(() => ({ body: JSON.stringify([`${standIn.url}/x`]) }));
    const came = await ask('/w/team-a/api/analytics/accounts/');
    expect(came.json()).toEqual(['https://gateway.internal/analytics/w/team-a/api/x']);
  });

  it('without a public address the gateway says once that links lead past it, in log and status, and stays ok', async () => {
    const { ask, askAdmin, standIn, logLines } = await startPair({ ADMIN_PORT: '0', CACHE_TTL: '0s' });
    const link = '<https://elsewhere.example/>; rel=help, <?page=2>; rel=next';
    standIn.behave(() => ({ headers: { link }, body: JSON.stringify([`${standIn.url}/x`]) }));
    for (let round = 0; round < 2; round++) {
      const { headers, body } = await ask(accounts);
      expect(headers['link']).toBe('</api/analytics/accounts/?page=2>; rel=next');
      expect(JSON.parse(body.toString())).toEqual([`${standIn.url}/x`]);
    }
    expect(logLines().filter(({ msg }) => String(msg).includes('set PUBLIC_BASE_URL'))).toHaveLength(1);
    const status = (await askAdmin('/status')).json();
    expect(status).toMatchObject({
      health: 'ok',
      reasons: [{ code: 'links-lead-past' }],
      links: { leadPast: true, dropped: 2 },
    });
    const metrics = (await askAdmin('/metrics')).body.toString();
    expect(metrics).toMatch(/^analytics_gateway_links_dropped_total 2$/m);
  });
});
