/** Load on one address, by wrk. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
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

let scripts = 0;
/** Queries never repeat within one run of the benchmark. */
let epoch = 0;

/** @throws Error where wrk is not installed */
export async function applyLoad(load: Load, folder: string): Promise<LoadResult> {
  const script = join(folder, `load-${scripts++}.lua`);
  writeFileSync(script, luaOf(load));
  const args = ['-t1', `-c${load.connections}`, `-d${load.seconds}s`, '--timeout', '10s', '--latency'];
  const text = await run('wrk', [...args, '-s', script, load.url], load);
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

function run(command: string, args: readonly string[], { seconds, core }: Load): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { timeout: (seconds + 30) * 1_000, maxBuffer: 1 << 24 };
    execFile(...onCore(core, command, args), options, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
  });
}
