import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { makeCertificate } from '../support/certificate.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, ask, startPair } from '../support/gateway.ts';
import {
  linesOf,
  type Owner,
  run,
  type Served,
  serve,
  settingsFor,
  standInFor,
  start,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { builtMain, compileCache } from '../support/program.ts';
import { formsIn } from '../support/secret-forms.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

/** Code that runs in the gateway's process before it does, as a module to import. */
function planted(code: string): string[] {
  return ['--import', `data:text/javascript,${encodeURIComponent(code)}`];
}

describe('a request’s line in the log', () => {
  it('a request’s line has the id of the trace that its caller named, refused or answered', async () => {
    const { ask, logLines } = await startPair();
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
    await ask(accounts, { headers: { traceparent } });
    await ask(accounts, { headers: { traceparent } });
    await ask('/api/nothing', { headers: { traceparent } });
    await ask(accounts, { headers: { traceparent: 'nonsense' } });
    await ask(accounts);
    const lines = logLines().filter(({ msg }) => msg === 'request');
    const membersOf = (line: Record<string, unknown>) =>
      ['traceId', 'trace_id', 'span_id', 'trace_flags'].map((name) => line[name]);
    // The span of the caller is not the request's: without spans of our own there is none.
    const named = [traceId, traceId, undefined, '01'];
    const none = [undefined, undefined, undefined, undefined];
    expect(lines.map((line) => [line['cache'] ?? line['problem'], membersOf(line)])).toEqual([
      ['miss', named],
      ['hit', named],
      ['unknown-operation', named],
      ['hit', none],
      ['hit', none],
    ]);
  });
});

describe('each request has one line', () => {
  it('each request has one line, whatever became of it: JSON without a query or field that callers sent', async () => {
    const { ask, exchange, standIn, logText, logLines } = await startPair({
      RETRY_LIMIT: '0',
      UPSTREAM_TIMEOUT: '1s',
      HEADERS_TIMEOUT: '1s',
    });
    const secret = 'hunter2';
    const fields = {
      authorization: `Bearer ${secret}`,
      cookie: secret,
      'user-agent': secret,
      accept: secret,
    };
    let started = 0;
    const send = async (path: string, method = 'GET'): Promise<void> => {
      started++;
      await ask(path, { method, headers: { ...fields, 'x-request-id': `r-${started}` } });
    };
    const raw = async (bytes: string): Promise<void> => {
      started++;
      await exchange(bytes, 5_000);
    };
    await send(`${accounts}?q=${secret}`);
    await send(`${accounts}?q=${secret}`);
    await send(`${accounts}?q=${secret}`, 'HEAD');
    await Promise.all([
      send(`${accounts}?api_key=${secret}`),
      send(`/api/nothing?${secret}`),
      send(`/nothing?${secret}`),
      send(`/problems/unknown-operation?${secret}`),
      send(accounts, 'POST'),
      raw(`GET / HTTP/1.1\r\nHost: evil.example\r\nCookie: ${secret}\r\nConnection: close\r\n\r\n`),
      raw(`GET ${accounts}?${secret} HTTP/1.1\r\n\r\n`),
      raw(`${secret}\r\n\r\n`),
      raw(`GET ${accounts} HTTP/1.1\r\nHost: localhost\r\nX: ${secret}${'x'.repeat(20_000)}\r\n\r\n`),
      raw(`GET ${accounts} HTTP/1.1\r\nHost: localhost\r\nX: ${secret}`),
      raw(`CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nCookie: ${secret}\r\n\r\n`),
    ]);
    standIn.behave({ status: 500, body: `{"a":"${secret}"}` });
    await send(`${accounts}?failing`);
    standIn.behave({ stallAt: 'before-headers' });
    await send(`${accounts}?stalled`);
    const leaver = new AbortController();
    started++;
    const left = ask(`${accounts}?left`, { signal: leaver.signal }).catch(() => 'left');
    await until(() => standIn.requests.some(({ target }) => target.endsWith('?left')));
    leaver.abort();
    await left;
    await expect.poll(() => logText()).toContain('"status":499');

    const finished = logLines().filter(({ status }) => status !== undefined);
    expect(finished).toHaveLength(started);
    expect(finished.map(({ status }) => status)).toEqual(
      expect.arrayContaining([200, 400, 404, 405, 408, 421, 431, 499, 500, 504]),
    );
    expect(logText()).not.toContain(secret);
    // One line each: nothing but printable text between the line feeds.
    const control = [...logText()].filter((char) => (char < ' ' && char !== '\n') || char === '\x7f');
    expect(control).toEqual([]);
    expect(finished.find(({ requestId }) => requestId === 'r-2')).toMatchObject({
      level: 'info',
      time: expect.any(Number),
      requestId: 'r-2',
      caller: 'anonymous',
      method: 'GET',
      operation: 'list-accounts',
      status: 200,
      cache: 'hit',
      attempts: 0,
      waitedMs: 0,
      upstreamMs: 0,
      totalMs: expect.any(Number),
    });
  });
});

describe('nothing but the log writes, and all of it', () => {
  const shared = sharedOwner();
  let gateway: Served;
  beforeAll(async () => {
    const standIn = await standInFor(shared);
    gateway = await serve(shared, {
      settings: settingsFor(standIn.url),
      flags: planted(`process.on('SIGUSR2', () => {
        for (const method of ['log', 'info', 'warn', 'error', 'debug', 'trace'])
          console[method]('printed by ' + method, process.env.UPSTREAM_API_KEY, new Error(process.env.UPSTREAM_API_KEY));
        process.emitWarning('warned with ' + process.env.UPSTREAM_API_KEY);
        process.nextTick(() => console.log('the last'));
      });`),
    });
  });

  it('what libraries print and the runtime warns of becomes a line of the log without the key', async () => {
    gateway.signal('SIGUSR2');
    await gateway.printed(/the last.*\n/);
    await gateway.printed(/a warning of the runtime.*\n/);
    expect(gateway.stderr()).toBe('');
    expect(gateway.stdout()).not.toContain(standInKey);
    const printed = gateway.lines().filter(({ msg }) => msg === 'a library printed');
    expect(printed).toHaveLength(7);
    expect(printed[0]).toMatchObject({
      parts: ['printed by log', '[key cf2918ab]', 'Error: [key cf2918ab]'],
    });
    expect(gateway.lines()).toContainEqual(
      expect.objectContaining({ level: 'warn', msg: 'a warning of the runtime' }),
    );
  });

  it('no line is lost when the process ends, though the reader is slow', async () => {
    gateway.child.stdout?.pause();
    // About 600 kB: more than a pipe and the streams on its way hold.
    const rounds = 2_000;
    const begun = 'GET /none HTTP/1.1\r\nHost: localhost\r\n';
    for (let asked = 0; asked < rounds; asked += 16) {
      const caller = connect(gateway.port, '127.0.0.1');
      caller.end(`${`${begun}\r\n`.repeat(15)}${begun}Connection: close\r\n\r\n`);
      await new Promise((resolve) => caller.resume().once('close', resolve));
    }
    gateway.signal('SIGTERM');
    gateway.child.stdout?.resume();
    expect(await gateway.exited).toBe(0);
    expect(gateway.lines().filter(({ msg }) => msg === 'request')).toHaveLength(rounds);
    expect(gateway.lines().at(-1)).toMatchObject({ msg: 'stopped' });
    expect(gateway.stderr()).toBe('');
    expect(gateway.stdout()).not.toContain(standInKey);
  });
});

describe.concurrent('an unexpected fault', () => {
  it.for([
    ['thrown in a timer', 'setTimeout(() => { throw fault; })'],
    ['an unhandled rejection', 'Promise.reject(fault); Promise.reject(process.env.UPSTREAM_API_KEY)'],
    ['no error at all', 'setTimeout(() => { throw process.env.UPSTREAM_API_KEY; })'],
    [
      'an error that throws when it is looked at',
      `Object.defineProperty(fault, 'code', { enumerable: true, get() { throw fault; } }); setTimeout(() => { throw fault; })`,
      'a line of the log cannot be made',
    ],
  ] as const)(
    '%s is logged without the key; what runs is finished, then the process ends with 1',
    async ([, code, message = 'an unexpected fault; stopping'], owner) => {
      const standIn = await standInFor(owner);
      let release = (): void => {};
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      const cwd = temporaryFolder(owner);
      const gateway = await serve(owner, {
        cwd,
        settings: { ...settingsFor(standIn.url), SHUTDOWN_GRACE: '5m', LOG_LEVEL: 'trace' },
        flags: planted(`process.on('SIGUSR2', () => {
          const key = process.env.UPSTREAM_API_KEY;
          const fault = Object.assign(new Error('planted ' + key, { cause: { key } }), { key });
          ${code};
        });`),
      });
      standIn.behave({ until: released });
      const running = gateway.ask(accounts);
      await standIn.received(1);
      gateway.signal('SIGUSR2');
      await gateway.printed(new RegExp(message));
      release();
      expect((await running).status).toBe(200);
      expect(await gateway.exited).toBe(1);
      expect(gateway.lines()).toContainEqual(expect.objectContaining({ level: 'fatal', msg: message }));
      expect(formsIn(gateway.stdout() + gateway.stderr(), standInKey)).toEqual([]);
      expect(gateway.stderr()).toBe('');
      expect(readdirSync(cwd)).toEqual([]);
    },
  );
});

describe.concurrent('LOG_LEVEL', () => {
  it('LOG_LEVEL=silent writes nothing at all', async (owner) => {
    const running = start(owner, ['serve'], {
      settings: { ...settingsFor('http://127.0.0.1:9/api'), LOG_LEVEL: 'silent', PORT: '0' },
      flags: planted(`setTimeout(() => process.kill(process.pid, 'SIGTERM'), 1500)`),
    });
    await running.exited;
    expect(running.stdout() + running.stderr()).toBe('');
  });

  it('LOG_LEVEL is one of pino’s', async (owner) => {
    const settings = { ...settingsFor('http://127.0.0.1:9/api'), LOG_LEVEL: 'loud' };
    const { status, stderr, stdout } = await run(owner, ['serve'], { settings });
    expect(status).toBe(2);
    expect(stderr).toMatch(/LOG_LEVEL expects one of trace, debug/);
    expect(linesOf(stdout)).toEqual([]);
  });
});

describe('the form of the log', () => {
  const script = findOnPath('script');
  const isRequired = process.env['REQUIRE_TERMINAL'] === 'true';
  /** Runs the gateway with a terminal as its standard output, by util-linux's own program for that. */
  const inTerminal = async (owner: Owner, more: Readonly<Record<string, string>>): Promise<string> => {
    const standIn = await standInFor(owner);
    const command = [process.execPath, '--', builtMain, 'serve'].map((word) => `'${word}'`).join(' ');
    const settings = { ...settingsFor(standIn.url), ...more };
    const env = { PATH: process.env['PATH'], NODE_COMPILE_CACHE: compileCache, ...settings };
    const child = spawn(
      script ?? 'script',
      ['--quiet', '--return', '--flush', '--command', `exec ${command}`, '/dev/null'],
      {
        cwd: temporaryFolder(owner),
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    const ended = once(child, 'close');
    owner.onTestFinished(async () => {
      child.kill();
      await ended;
    });
    await until(() => /listening/.test(output) && /http:[^ "]+:\d+/.test(output));
    const [, port] = /http:[^ "]+:(\d+)/.exec(output) ?? [];
    await ask({ host: '127.0.0.1', port: Number(port) }, accounts, {});
    await until(() => /list-accounts/.test(output));
    return output;
  };

  it.skipIf(script === undefined && !isRequired)(
    'the log on a terminal is text for people',
    async (owner) => {
      const output = await inTerminal(owner, {});
      expect(output).toMatch(/^\d\d:\d\d:\d\d listening url=http:/m);
      expect(output).toMatch(/^\d\d:\d\d:\d\d GET list-accounts 200 miss [\d.]+ ms anonymous\r?$/m);
      expect(output).not.toContain('{"level"');
    },
  );

  it.skipIf(script === undefined && !isRequired)(
    'the log on a terminal is JSON where LOG_FORMAT says so',
    async (owner) => {
      const output = await inTerminal(owner, { LOG_FORMAT: 'json' });
      expect(linesOf(output.replaceAll('\r', '')).map(({ msg }) => msg)).toContain('request');
    },
  );

  it('the log elsewhere is JSON, and text where LOG_FORMAT says so, without the key', async () => {
    const json = await startPair();
    await json.ask(accounts);
    expect(json.logLines().map(({ msg }) => msg)).toContain('request');
    const text = await startPair({ LOG_FORMAT: 'text' });
    text.standIn.behave({ status: 200, body: JSON.stringify({ key: standInKey }) });
    await text.ask(accounts);
    expect(text.logText()).toMatch(/ GET list-accounts 502 /);
    expect(text.logText()).toContain('problem=upstream-invalid-response');
    expect(formsIn(text.logText(), standInKey)).toEqual([]);
  });
});

describe('a listener that is not on loopback', () => {
  const said = (lines: readonly Record<string, unknown>[]) =>
    lines.filter(({ msg }) => String(msg).startsWith('callers send their tokens in clear'));

  it('a listener without TLS that is not on loopback says once at the start that tokens travel in clear', async () => {
    const { entry } = enrol('script');
    const open = await startWith([entry], { HOST: '0.0.0.0' });
    expect(said(open.logLines())).toMatchObject([{ level: 'info', host: '0.0.0.0' }]);
    expect(said((await startWith([entry])).logLines())).toEqual([]);
  });

  it('a listener with TLS says nothing of the kind', async (owner) => {
    const { entry } = enrol('script');
    const folder = temporaryFolder(owner);
    const [certFile, keyFile] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
    const { cert, key } = makeCertificate();
    writeFileSync(certFile, cert);
    writeFileSync(keyFile, key);
    const safe = await startWith([entry], {
      HOST: '0.0.0.0',
      TLS_CERT_FILE: certFile,
      TLS_KEY_FILE: keyFile,
    });
    expect(said(safe.logLines())).toEqual([]);
  });
});
