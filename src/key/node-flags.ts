/** Which flags and variables of the runtime may stand beside a secret. Pure: no `this`, no I/O, no clock. */

import type { Environment } from '../config/values.ts';

/** The environment variable that says that a process was started as the command of an `exec:` store. */
export const storeCommandMark = 'ANALYTICS_GATEWAY_STORE_COMMAND';

/**
 * The flags that are known to write nothing of the process's memory, code or traffic anywhere. A list of what is
 * allowed: Node and V8 have a thousand flags, most releases add some, and one that prints must not pass unseen.
 */
const allowed = new Set(
  `
  max-old-space-size max-old-space-size-percentage max-semi-space-size min-semi-space-size semi-space-growth-factor
  initial-heap-size initial-old-space-size max-heap-size heap-growing-percent optimize-for-size lite-mode jitless
  single-threaded single-threaded-gc expose-gc gc-interval stack-trace-limit v8-pool-size use-largepages

  require r import experimental-loader loader conditions C input-type preserve-symlinks preserve-symlinks-main
  strip-types experimental-strip-types experimental-transform-types experimental-vm-modules
  experimental-require-module experimental-import-meta-resolve experimental-detect-module
  env-file env-file-if-exists watch watch-path watch-preserve-output watch-kill-signal title snapshot-blob
  enable-source-maps pending-deprecation trace-warnings trace-deprecation unhandled-rejections icu-data-dir

  use-openssl-ca use-bundled-ca use-system-ca tls-cipher-list tls-min-v1.0 tls-min-v1.1 tls-min-v1.2 tls-min-v1.3
  tls-max-v1.2 tls-max-v1.3 openssl-config openssl-shared-config openssl-legacy-provider enable-fips force-fips
  secure-heap secure-heap-min
  dns-result-order network-family-autoselection network-family-autoselection-attempt-timeout
  enable-network-family-autoselection use-env-proxy max-http-header-size

  permission allow-fs-read allow-fs-write allow-child-process allow-worker allow-net allow-addons allow-wasi
  report-exclude-env report-exclude-network disallow-code-generation-from-strings zero-fill-buffers`
    .trim()
    .split(/\s+/),
);

/** To turn something off writes nothing. */
const turnsOff = /^--(?:no|disable)-/;

/** At a field named `__proto__` Node's own HTTP parser throws then, and the process ends. */
const fatalFlag = '--disable-proto=throw';

/**
 * Names the flags among these that are refused. Their values are left out, but for that of `fatalFlag`.
 *
 * @param nodeOptions the environment variable `NODE_OPTIONS`, as it is
 * @param execArgv `process.execArgv`
 */
export function refusedNodeOptions(nodeOptions: string, execArgv: readonly string[] = []): string[] {
  const words = [...splitOptions(nodeOptions), ...execArgv].map((word) => word.replace(/^["']+|["']+$/g, ''));
  const refused = words.flatMap((word, at) => {
    if (!word.startsWith('-')) return [];
    const [name = '', value = words[at + 1]] = word.split(/[=\s]/, 2);
    // Node takes underscores for dashes, and V8 one dash for two.
    const flag = `--${name.replace(/^-+/, '').replaceAll('_', '-')}`;
    if (flag === '--disable-proto') return value === 'throw' ? [fatalFlag] : [];
    return turnsOff.test(flag) || allowed.has(flag.slice(2)) ? [] : [flag];
  });
  return [...new Set(refused)];
}

/**
 * What begins as Node's and undici's own variables do, and may be set. A list of what is allowed, as with flags:
 * `NODE_DEBUG=stream` prints the key, `NODE_DEBUG=undici` prints queries, and each release may add a name that prints.
 */
const allowedVariables = new Set(
  `
  NODE_OPTIONS NODE_ENV NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA NODE_USE_ENV_PROXY NODE_TLS_REJECT_UNAUTHORIZED
  NODE_COMPILE_CACHE NODE_COMPILE_CACHE_PORTABLE NODE_COMPILE_CACHE_READONLY NODE_DISABLE_COMPILE_CACHE
  NODE_PATH NODE_PRESERVE_SYMLINKS NODE_PRESERVE_SYMLINKS_MAIN NODE_ICU_DATA NODE_SKIP_PLATFORM_CHECK
  NODE_NO_WARNINGS NODE_PENDING_DEPRECATION NODE_DISABLE_COLORS NODE_CLUSTER_SCHED_POLICY
  NODE_RUN_SCRIPT_NAME NODE_RUN_PACKAGE_JSON_PATH UNDICI_NO_WASM_SIMD

  NODE_VERSION NODE_MAJOR NODE_HOME NODE_NAME NODE_IP NODE_HOST NODE_HOSTNAME NODE_PORT NODE_APP_INSTANCE
  NODE_AUTH_TOKEN`
    .trim()
    .split(/\s+/),
);

const runtimeVariable = /^(?:NODE|UNDICI)_/;

/** Kubernetes sets these in every pod for a service whose name begins with `node-`, such as `node-exporter`. */
const serviceVariable =
  /_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$/;

/**
 * What others than Node act on in this process, and print or write: OpenSSL, the client of the shared store, and the
 * libraries of the clouds' stores. Their names have no beginning of their own, so these are named one by one.
 */
const printingVariables = new Set(
  `
  SSLKEYLOGFILE OPENSSL_TRACE QLOGDIR REDIS_DEBUG_MAINTENANCE REDIS_EMIT_DIAGNOSTICS
  GOOGLE_SDK_NODE_LOGGING GRPC_TRACE GRPC_NODE_TRACE GRPC_NODE_DEBUG_SEND_ERROR_DETAILS DEBUG_AUTH`
    .trim()
    .split(/\s+/),
);

/** Words that applications use for themselves; the package `debug` prints nothing for them. */
const plainSwitch = /^(?:0|1|true|false|yes|no|on|off)$/i;

/** Nothing is switched on by an empty value. */
function isAllowedVariable(name: string, value: string): boolean {
  if (value === '' || allowedVariables.has(name)) return true;
  if (name === 'DEBUG') return plainSwitch.test(value);
  if (runtimeVariable.test(name)) return serviceVariable.test(name);
  return !printingVariables.has(name);
}

/** A variable that Node itself acts on, with a value that is not for a process with a secret, and why not. */
export interface RefusedVariable {
  readonly name: string;
  /** One line, without a full stop. */
  readonly why: string;
}

/**
 * The first variable that is refused; `undefined` where all is well.
 *
 * @param environment the process's own, or what a file of settings adds
 * @param execArgv `process.execArgv`: judged with NODE_OPTIONS
 */
export function findRefusedVariable(
  environment: Environment,
  execArgv: readonly string[] = [],
): RefusedVariable | undefined {
  const flags = refusedNodeOptions(environment['NODE_OPTIONS'] ?? '', execArgv);
  if (flags.includes(fatalFlag)) {
    return {
      name: 'NODE_OPTIONS',
      why: `${fatalFlag}: a request with a field named __proto__ would end the process. Use --disable-proto=delete`,
    };
  }
  if (flags.length > 0) {
    return {
      name: 'NODE_OPTIONS',
      why: `${flags.join(', ')}: not with a secret in memory. Inspectors, reports, snapshots and profiles would show it; only flags that are known to write nothing of it are allowed`,
    };
  }
  const [first, ...others] = Object.keys(environment).filter(
    (name) => !isAllowedVariable(name, environment[name] ?? ''),
  );
  if (first !== undefined) {
    return {
      name: first,
      why: `${[first, ...others].join(', ')}: not with a secret in memory. It may print or write what the gateway reads and sends; of the names that Node and its libraries act on, only those that are known to write nothing of it are allowed`,
    };
  }
  if (environment['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    return {
      name: 'NODE_TLS_REJECT_UNAUTHORIZED',
      why: 'NODE_TLS_REJECT_UNAUTHORIZED=0: the key would go to any server that answers. Trust a private authority with NODE_EXTRA_CA_CERTS instead',
    };
  }
  return undefined;
}

/**
 * As Node takes `NODE_OPTIONS` apart: only `"` quotes, anywhere in a word, and a backslash counts only within.
 * (Other whitespace than spaces is part of a word there, and the word then no flag; here it separates.)
 */
function splitOptions(text: string): string[] {
  const words: string[] = [];
  let word = '';
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const character = text.charAt(at);
    if (character === '\\' && quoted) word += text.charAt(++at);
    else if (character === '"') quoted = !quoted;
    else if (/\s/.test(character) && !quoted) {
      words.push(word);
      word = '';
    } else word += character;
  }
  words.push(word);
  return words;
}
