/** Load on one address: wrk where it is installed, else autocannon. */
import { execFile, execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { onCore } from './cores.ts';

export interface Load {
  readonly url: string;
  readonly connections: number;
  readonly seconds: number;
  readonly tokens: readonly string[];
  /**
   * `same`: one read. `new`: each with a query of its own, so that nothing can be answered from memory or
   * shared. A number: that many different reads in random order.
   */
  readonly reads: 'same' | 'new' | number;
  /** Where the generator runs. */
  readonly core?: number | undefined;
}

export interface LoadResult {
  readonly requests: number;
  readonly failed: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export const generator: 'wrk' | 'autocannon' = hasWrk() ? 'wrk' : 'autocannon';

function hasWrk(): boolean {
  try {
    execFileSync('wrk', ['-v'], { stdio: 'ignore' });
    return true;
  } catch (error) {
    // It prints its version with status 1.
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}

let scripts = 0;
/** Queries never repeat within one run of the benchmark. */
let epoch = 0;

export function applyLoad(load: Load, folder: string): Promise<LoadResult> {
  return generator === 'wrk' ? runWrk(load, folder) : runAutocannon(load);
}

function runWrk(load: Load, folder: string): Promise<LoadResult> {
  const script = join(folder, `load-${scripts++}.lua`);
  writeFileSync(script, luaOf(load));
  const args = ['-t1', `-c${load.connections}`, `-d${load.seconds}s`, '--timeout', '10s', '--latency'];
  return run('wrk', [...args, '-s', script, load.url], load).then((text) => {
    const requests = Number(/(\d+) requests in/.exec(text)?.[1] ?? 0);
    const bad = Number(/Non-2xx or 3xx responses: (\d+)/.exec(text)?.[1] ?? 0);
    const broken = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(text) ?? [];
    return {
      requests,
      failed: bad + broken.slice(1).reduce((sum, one) => sum + Number(one), 0),
      perSecond: Number(/Requests\/sec:\s+([\d.]+)/.exec(text)?.[1] ?? 0),
      p50Ms: milliseconds(/50%\s+([\d.]+)(us|ms|s)/.exec(text)),
      p99Ms: milliseconds(/99%\s+([\d.]+)(us|ms|s)/.exec(text)),
    };
  });
}

function milliseconds(found: RegExpExecArray | null): number {
  const factor = { us: 0.001, ms: 1, s: 1_000 }[found?.[2] ?? ''] ?? 0;
  return Number(found?.[1] ?? 0) * factor;
}

/** Requests are prepared once where they can be: the generator shares the machine with what it measures. */
function luaOf({ url, tokens, reads }: Load): string {
  const { pathname, host } = new URL(url);
  const fields = (token: string): string =>
    `Host: ${host}\\r\\nAuthorization: Bearer ${token}\\r\\nAccept: application/json\\r\\nUser-Agent: bench\\r\\n\\r\\n`;
  const [first = ''] = tokens;
  if (reads === 'same' && tokens.length === 1) {
    return `local whole = "GET ${pathname} HTTP/1.1\\r\\n${fields(first)}"\nrequest = function() return whole end\n`;
  }
  if (reads === 'new') {
    const run = `${process.pid}-${epoch++}`;
    return `
local count = 0
local fields = " HTTP/1.1\\r\\n${fields(first)}"
request = function()
  count = count + 1
  return "GET ${pathname}?run=${run}&page=" .. count .. fields
end
`;
  }
  const list = tokens.map((token) => `"${token}"`).join(',');
  return `
local tokens = {${list}}
local reads = ${reads === 'same' ? 0 : reads}
math.randomseed(1)
request = function()
  local token = tokens[math.random(#tokens)]
  local query = reads > 0 and "?page=" .. math.random(reads) or ""
  return "GET ${pathname}" .. query .. " HTTP/1.1\\r\\nHost: ${host}\\r\\nAuthorization: Bearer " .. token ..
    "\\r\\nAccept: application/json\\r\\nUser-Agent: bench\\r\\n\\r\\n"
end
`;
}

async function runAutocannon(load: Load): Promise<LoadResult> {
  const { url, connections, seconds, tokens, reads } = load;
  const cli = createRequire(import.meta.url).resolve('autocannon');
  const target = reads === 'new' ? `${url}?run=${process.pid}-${epoch++}&page=[<id>]` : url;
  const args = [cli, '-c', String(connections), '-d', String(seconds), '-j', '-n'];
  if (reads === 'new') args.push('-I');
  const header = ['-H', `Authorization=Bearer ${tokens[0]}`];
  const text = await run(process.execPath, [...args, ...header, target], load);
  const { requests, latency, non2xx, errors } = JSON.parse(text) as {
    requests: { total: number; average: number };
    latency: { p50: number; p99: number };
    non2xx: number;
    errors: number;
  };
  return {
    requests: requests.total,
    failed: non2xx + errors,
    perSecond: requests.average,
    p50Ms: latency.p50,
    p99Ms: latency.p99,
  };
}

function run(command: string, args: readonly string[], { seconds, core }: Load): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { timeout: (seconds + 30) * 1_000, maxBuffer: 1 << 24 };
    execFile(...onCore(core, command, args), options, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
  });
}
