/** The built gateway with OpenTelemetry's own SDK beside it, before a collector of ours. */
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { hasLibraries } from '../libraries/import-library.ts';
import { enrol, writeCallersFile } from '../support/callers-files.ts';
import { makeCertificate } from '../support/certificate.ts';
import { type Collector, type ExportedSpan, startCollector } from '../support/collector-stand-in.ts';
import { failedStart } from '../support/command-line.ts';
import { accounts, ask } from '../support/gateway.ts';
import { copyOfProgram } from '../support/image.ts';
import {
  type Owner,
  run,
  type Served,
  serve,
  settingsFor,
  standInFor,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { startProxy, startTlsBefore } from '../support/proxy.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { type StandIn, standInKey } from '../support/stand-in/stand-in.ts';

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const otherTraceId = '0af7651916cd43dd8448eb211c80319c';
const callerSpanId = '00f067aa0ba902b7';
const traceparent = `00-${traceId}-${callerSpanId}-01`;
const below = '/analytics/accounts/';

async function startTraced(
  owner: Owner,
  main: string,
  settings: Record<string, string> = {},
  flags: readonly string[] = [],
) {
  const collector = await startCollector(owner);
  const standIn = await standInFor(owner);
  const gateway = await serve(owner, {
    main,
    flags,
    settings: {
      ...settingsFor(standIn.url),
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      ...settings,
    },
  });
  return { collector, standIn, gateway };
}

/** Ends the gateway, by which all spans are exported. */
async function exportedSpans(gateway: Served, { spans }: Collector): Promise<readonly ExportedSpan[]> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toBe(0);
  expect(gateway.stderr()).toBe('');
  return spans;
}

const requestsOf = (spans: readonly ExportedSpan[]) => spans.filter(({ kind }) => kind === 2);
const attemptsOf = (spans: readonly ExportedSpan[]) =>
  spans.filter(({ kind }) => kind === 3).sort((one, other) => Number(one.startNs - other.startNs));

describe.skipIf(!hasLibraries)('traces for a collector', () => {
  const { folder, main } = copyOfProgram();
  const shared = sharedOwner();
  let collector: Collector;
  let standIn: StandIn;
  let gateway: Served;
  beforeAll(async () => {
    const libraries = fileURLToPath(new URL('../libraries/node_modules', import.meta.url));
    symlinkSync(libraries, join(folder, 'node_modules'));
    // What is shared exports each span soon, and says on SIGUSR2 what listens to its requests.
    const code = `import { channel } from 'node:diagnostics_channel';
      const names = ['undici:request:create', 'undici:client:sendHeaders', 'undici:request:headers',
        'http.client.request.start', 'http.server.request.start', 'net.client.socket'];
      process.on('SIGUSR2', () => console.log('heard: ' + names.filter((name) => channel(name).hasSubscribers) + '.'));`;
    const settings = { ADMIN_PORT: '0', OTEL_BSP_SCHEDULE_DELAY: '20' };
    const flags = ['--import', `data:text/javascript,${encodeURIComponent(code)}`];
    ({ collector, standIn, gateway } = await startTraced(shared, main, settings, flags));
  });

  /** What is exported from now until the spans of so many requests have come. */
  async function spansOf(requests: number, act: () => Promise<unknown>): Promise<readonly ExportedSpan[]> {
    const from = collector.spans.length;
    await act();
    await until(() => requestsOf(collector.spans.slice(from)).length >= requests);
    return collector.spans.slice(from);
  }

  it('a request has a span below its caller’s, with one below it for each attempt, which is the upstream’s parent', async () => {
    standIn.behave({ status: 503 }, 1);
    const headers = { traceparent, tracestate: 'a=b', 'x-request-id': 'r-1', host: 'localhost:8080' };
    const spans = await spansOf(1, async () =>
      expect((await gateway.ask(`${accounts}?attempts`, { headers })).status).toBe(200),
    );
    const [request] = requestsOf(spans);
    const attempts = attemptsOf(spans);
    expect(spans).toHaveLength(3);
    expect(request).toMatchObject({
      name: 'GET /api/analytics/accounts/',
      traceId,
      parentSpanId: callerSpanId,
      statusCode: 0,
      attributes: {
        'http.request.method': 'GET',
        'http.response.status_code': 200,
        'http.route': '/api/analytics/accounts/',
        'url.scheme': 'http',
        'url.path': accounts,
        'client.address': '127.0.0.1',
        'server.address': 'localhost',
        'server.port': 8080,
        'analytics_gateway.request_id': 'r-1',
        'analytics_gateway.cache': 'miss',
        'analytics_gateway.attempts': 2,
      },
      resource: { 'service.name': 'workspace-analytics-gateway' },
    });
    for (const attempt of attempts) {
      expect(attempt).toMatchObject({
        traceId,
        parentSpanId: request?.spanId,
        name: 'GET /analytics/accounts/',
      });
      expect(attempt.startNs >= (request?.startNs ?? 0n) && attempt.endNs <= (request?.endNs ?? 0n)).toBe(
        true,
      );
    }
    expect(attempts.map(({ attributes, statusCode }) => [attributes, statusCode])).toMatchObject([
      [{ 'http.response.status_code': 503, 'error.type': '503', 'server.address': '127.0.0.1' }, 2],
      [{ 'http.response.status_code': 200, 'http.request.resend_count': 1, 'url.template': below }, 0],
    ]);
    expect(standIn.requests.map((one) => one.headers['traceparent'])).toEqual(
      attempts.map(({ spanId }) => `00-${traceId}-${spanId}-01`),
    );
    expect(standIn.requests.map((one) => one.headers['tracestate'])).toEqual(['a=b', 'a=b']);
    const [line] = await gateway.printed(/.*"msg":"request".*/);
    const ids = { traceId, trace_id: traceId, span_id: request?.spanId, trace_flags: '01' };
    expect(JSON.parse(line)).toMatchObject(ids);
  });

  it('a request’s waits for the gate and before a retry are events of its span', async () => {
    const replies = [{ status: 429, headers: { 'retry-after': '1' } }, { status: 503 }];
    standIn.behave(() => replies.shift());
    const [request] = requestsOf(
      await spansOf(1, async () => expect((await gateway.ask(`${accounts}?waits`)).status).toBe(200)),
    );
    const events = request?.events ?? [];
    expect(events.map(({ name }) => name)).toContain('gate.wait');
    expect(new Set(events.map(({ name }) => name))).toEqual(new Set(['retry.wait', 'gate.wait']));
    const waited = events.map(({ attributes }) => Number(attributes['analytics_gateway.waited_ms']));
    const total = Number(request?.attributes['analytics_gateway.waited_ms']);
    expect(waited.reduce((sum, ms) => sum + ms, 0)).toBeGreaterThan(total - 3);
  });

  it('a hit has a span without an attempt, and a request that joined another’s exchange is linked to it', async () => {
    const [, adminPort] = await gateway.printed(/"adminUrl":"http:[^"]*:(\d+)"/);
    const admin = { host: '127.0.0.1', port: Number(adminPort) };
    const { promise, resolve } = Promise.withResolvers<void>();
    standIn.behave({ until: promise });
    const path = `${accounts}?joined`;
    const spans = await spansOf(4, async () => {
      const first = gateway.ask(path, { headers: { traceparent } });
      await until(() => standIn.requests.at(-1)?.target === path);
      const second = gateway.ask(path);
      await until(async () => (await ask(admin, '/status', {})).body.includes('"waiting":2'));
      await gateway.ask('/api/nothing');
      resolve();
      await Promise.all([first, second]);
      await gateway.ask(path);
    });
    const byCache = new Map(
      requestsOf(spans).map((span) => [span.attributes['analytics_gateway.cache'], span]),
    );
    expect(attemptsOf(spans)).toHaveLength(1);
    expect(byCache.get('hit')).toMatchObject({ parentSpanId: '', links: [] });
    const leader = byCache.get('miss');
    expect(byCache.get('joined')?.links).toMatchObject([{ traceId, spanId: leader?.spanId }]);
    expect(byCache.get('joined')?.traceId).not.toBe(traceId);
    expect(byCache.get(undefined)).toMatchObject({
      name: 'GET',
      statusCode: 0,
      attributes: { 'http.response.status_code': 404, 'error.type': 'unknown-operation' },
    });
  });

  it('a trace that its caller does not sample is not exported, and is not sampled further up', async () => {
    standIn.behave(undefined);
    const headers = { traceparent: `00-${otherTraceId}-${callerSpanId}-00` };
    const spans = await spansOf(1, async () => {
      await gateway.ask(`${accounts}?unsampled`, { headers });
      // Exported after the other, if the other were.
      await gateway.ask(`${accounts}?sampled`);
    });
    expect(spans).toHaveLength(2);
    expect(spans.map((span) => span.traceId)).not.toContain(otherTraceId);
    const up = standIn.requests.find(({ target }) => target.endsWith('?unsampled'));
    const [, id, span, flags] = String(up?.headers['traceparent']).split('-');
    expect([id, flags]).toEqual([otherTraceId, '00']);
    expect(span).not.toBe(callerSpanId);
  });

  it('a background refresh has a trace of its own, below no request', async () => {
    standIn.behave({ headers: { 'cache-control': 'max-age=0, stale-while-revalidate=3600' } });
    const path = `${accounts}?refreshed`;
    const isRefresh = ({ kind, attributes }: ExportedSpan) =>
      kind === 3 && attributes['analytics_gateway.background'] === true;
    await gateway.ask(path);
    await until(async () => {
      await gateway.ask(path, { headers: { traceparent } });
      return collector.spans.some(isRefresh);
    });
    const refresh = collector.spans.find(isRefresh);
    expect(refresh?.parentSpanId).toBe('');
    expect(refresh?.traceId).not.toBe(traceId);
  });

  it('OpenTelemetry sees no request: it listens to no diagnostics channel, on which undici would show the key', async () => {
    expect((await gateway.ask(accounts)).status).toBe(200);
    gateway.signal('SIGUSR2');
    await gateway.printed(/"heard: \."/);
    // The last of those that share the gateway.
    await exportedSpans(gateway, collector);
  });

  it('traces obey the standard variables of OpenTelemetry', async (owner) => {
    const { collector, gateway } = await startTraced(owner, main, {
      OTEL_SERVICE_NAME: 'the-gateway',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-collector=of-the-team',
      OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    });
    await gateway.ask(`${accounts}?1`);
    await gateway.ask(`${accounts}?2`, { headers: { traceparent } });
    const spans = await exportedSpans(gateway, collector);
    expect(new Set(spans.map((span) => span.traceId))).toEqual(new Set([traceId]));
    expect(spans[0]?.resource['service.name']).toBe('the-gateway');
    expect(collector.exports[0]?.headers).toContain('of-the-team');
  });

  it('traces go to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT as it stands, alone or before the other', async (owner) => {
    const own = await startCollector(owner);
    const { collector, gateway } = await startTraced(owner, main, {
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${own.url}/of-the-team`,
    });
    await gateway.ask(accounts);
    expect(await exportedSpans(gateway, own)).toHaveLength(2);
    expect(own.exports.map(({ path }) => path)).toEqual(['/of-the-team']);
    expect(collector.exports).toEqual([]);
    const alone = await startTraced(owner, main, {
      OTEL_EXPORTER_OTLP_ENDPOINT: '',
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${own.url}/alone`,
      WORKSPACES: 'sales',
      UPSTREAM_API_KEY_FROM_SALES: 'env:KEY_OF_SALES',
      KEY_OF_SALES: standInKey,
    });
    await alone.gateway.ask('/w/sales/api/users/api-keys');
    const spans = await exportedSpans(alone.gateway, own);
    expect(own.exports.at(-1)?.path).toBe('/alone');
    expect(requestsOf(spans).at(-1)).toMatchObject({
      name: 'GET /w/:workspace/api/users/api-keys/',
      attributes: { 'url.path': '/w/sales/api/users/api-keys', 'analytics_gateway.workspace': 'sales' },
    });
  });

  it('traces hold nothing of a key, a token, a query or a field, in either format', async (owner) => {
    for (const protocol of ['http/json', 'http/protobuf']) {
      const { token, entry } = enrol('script');
      const { collector, standIn, gateway } = await startTraced(owner, main, {
        CALLERS_FILE: writeCallersFile([entry], owner.onTestFinished),
        OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
        OTEL_RESOURCE_ATTRIBUTES: 'service.name=of-the-team',
      });
      const headers = { authorization: `Bearer ${token}`, cookie: 'hunter2', 'user-agent': 'hunter2' };
      await gateway.ask(`${accounts}?q=hunter2`, { headers });
      await gateway.ask(`${accounts}?q=hunter2`, {
        headers: { ...headers, authorization: 'Bearer hunter2' },
      });
      await gateway.ask(`/api/${token}?q=hunter2`, { headers });
      await gateway.ask(`/api/${standInKey}`, { headers: { ...headers, host: `a.${token}.example` } });
      await gateway.ask('/api/nothing', { headers });
      standIn.behave({ status: 401, body: '{"a":"hunter2"}' });
      await gateway.ask(`${accounts}?q=hunter2&2`, { headers });
      await exportedSpans(gateway, collector);
      const sent = collector.exports
        .map(({ body, headers: fields, path }) => path + fields + body)
        .join('\n');
      for (const shown of ['list-accounts', 'caller-unauthenticated', '/api/nothing', '[a credential]'])
        expect(sent).toContain(shown);
      expect(sent).toContain('of-the-team');
      for (const secret of ['hunter2', token, token.slice(4, 24), standInKey])
        expect(sent).not.toContain(secret);
    }
  });

  it.for(['http/json', 'http/protobuf'])(
    'traces leave the network through a proxy, as %s',
    async (format, owner) => {
      const tls = makeCertificate({ names: ['collector.test'] });
      const authorities = join(temporaryFolder(owner), 'authorities.pem');
      writeFileSync(authorities, tls.cert);
      const inner = await startCollector(owner);
      const port = await startTlsBefore(owner, Number(new URL(inner.url).port), tls);
      const proxy = await startProxy(owner);
      const { gateway } = await startTraced(owner, main, {
        OTEL_EXPORTER_OTLP_ENDPOINT: `https://collector.test:${port}`,
        OTEL_EXPORTER_OTLP_PROTOCOL: format,
        OTEL_BSP_SCHEDULE_DELAY: '20',
        HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`,
        NODE_EXTRA_CA_CERTS: authorities,
      });
      await gateway.ask(accounts);
      await until(() => inner.exports.length > 0);
      expect(inner.exports[0]?.body).toContain('list-accounts');
      expect(new Set(proxy.asked.map(({ target }) => target))).toEqual(new Set([`collector.test:${port}`]));
    },
  );

  it.concurrent.for(['absent', 'refusing', 'hanging'])(
    'a collector that is %s changes nothing for callers, and the gateway ends within its grace',
    async (what, owner) => {
      const { collector, gateway } = await startTraced(owner, main, {
        // Without an end of its own to wait for.
        OTEL_EXPORTER_OTLP_TIMEOUT: '3600000',
        OTEL_BSP_SCHEDULE_DELAY: '50',
        OTEL_BSP_EXPORT_TIMEOUT: '3600000',
        SHUTDOWN_GRACE: '1s',
        ...(what === 'absent' ? { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' } : {}),
      });
      collector.answer(what === 'hanging' ? 'hang' : 400);
      for (let count = 0; count < 5; count++) {
        expect((await gateway.ask(`${accounts}?${count}`)).status).toBe(200);
      }
      if (what !== 'absent') await until(() => collector.exports.length > 0);
      gateway.signal('SIGTERM');
      expect(await gateway.exited).toBe(0);
      expect(gateway.lines().at(-1)).toMatchObject({ msg: 'stopped', started: 5, finished: 5 });
      expect(gateway.stdout()).toMatch(/spans could not be exported/);
      if (what === 'refusing') expect(gateway.stdout()).toContain('"reason":"the collector answered 400"');
    },
  );
});

describe('traces without the SDK', () => {
  const settings = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

  it('a gateway without the SDK says at the start, and in check, what to install, with all else that is wrong', async (owner) => {
    const standIn = await standInFor(owner);
    for (const command of ['serve', 'check']) {
      const only = await run(owner, [command], { settings: { ...settingsFor(standIn.url), ...settings } });
      expect(only.status).toBe(2);
      expect(only.stdout + only.stderr).toContain(
        'OTEL_EXPORTER_OTLP_ENDPOINT: needs a package that is not installed: npm install --prefix ',
      );
      const { UPSTREAM_API_KEY: _, ...without } = settingsFor(standIn.url);
      const both = await run(owner, [command], { settings: { ...without, ...settings } });
      expect(both.stdout + both.stderr).toContain('/libraries @opentelemetry/');
      expect(both.stdout + both.stderr).toContain('UPSTREAM_API_KEY');
    }
  });

  it('an address of a collector with credentials in it is refused, and not repeated', async () => {
    const { status, text, logged } = await failedStart({
      ...settingsFor('http://127.0.0.1:9'),
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://me:hunter2@127.0.0.1',
    });
    expect(status).toBe(2);
    expect(text).toContain('OTEL_EXPORTER_OTLP_ENDPOINT must not contain credentials');
    expect(text + logged).not.toContain('hunter2');
  });
});
