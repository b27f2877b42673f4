import { describe, expect, it } from 'vitest';
import { findRefusedVariable, refusedNodeOptions } from '../../src/key/node-flags.ts';
import { imageFlags } from '../support/image-flags.ts';

describe('flags of the runtime', () => {
  it.each([
    ['--inspect', ['--inspect']],
    ['--inspect=0.0.0.0:9229', ['--inspect']],
    ['--inspect-brk --max-old-space-size=64', ['--inspect-brk']],
    ['--inspect_port=1', ['--inspect-port']],
    ['--report-on-fatalerror', ['--report-on-fatalerror']],
    [
      '--report-uncaught-exception --report-directory=/tmp',
      ['--report-uncaught-exception', '--report-directory'],
    ],
    ['--heapsnapshot-signal=SIGUSR2', ['--heapsnapshot-signal']],
    ['--heapsnapshot-near-heap-limit=3', ['--heapsnapshot-near-heap-limit']],
    ['"--heap-prof"', ['--heap-prof']],
    ['--heap-snapshot-on-oom', ['--heap-snapshot-on-oom']],
    ['--heap_snapshot_path=/tmp', ['--heap-snapshot-path']],
    ['-heap_snapshot_on_oom', ['--heap-snapshot-on-oom']],
    ['--experimental-config-file=node.config.json', ['--experimental-config-file']],
    ['--experimental-default-config-file', ['--experimental-default-config-file']],
    ['--heap-prof-dir "/a b"', ['--heap-prof-dir']],
    ['--abort-on-uncaught-exception', ['--abort-on-uncaught-exception']],
    ['--build-snapshot', ['--build-snapshot']],
    ['--tls-keylog=/tmp/keys', ['--tls-keylog']],
    // They write code, patterns or what passes: V8's own flags, and some of Node's.
    ['--perf-basic-prof', ['--perf-basic-prof']],
    ['--perf_prof', ['--perf-prof']],
    ['--prof --logfile=/tmp/v8.log', ['--prof', '--logfile']],
    ['--cpu-prof --diagnostic-dir=/tmp', ['--cpu-prof', '--diagnostic-dir']],
    ['--log-code', ['--log-code']],
    ['--print-regexp-code', ['--print-regexp-code']],
    ['--print-bytecode', ['--print-bytecode']],
    ['--trace-regexp-bytecodes', ['--trace-regexp-bytecodes']],
    ['--trace-tls', ['--trace-tls']],
    ['--trace-event-categories=v8', ['--trace-event-categories']],
    ['--redirect-warnings=/tmp/w', ['--redirect-warnings']],
    ['--gdbjit', ['--gdbjit']],
    ['--interpreted-frames-native-stack', ['--interpreted-frames-native-stack']],
    ['--expose-inspector-scripts', ['--expose-inspector-scripts']],
    ['--allow-natives-syntax', ['--allow-natives-syntax']],
    // Ambiguous messages would be read.
    ['--insecure-http-parser', ['--insecure-http-parser']],
    // A warning of a library would end the process.
    ['--throw-deprecation', ['--throw-deprecation']],
    ['-e 1', ['--e']],
    ['--one-that-comes-with-the-next-release', ['--one-that-comes-with-the-next-release']],
  ])('the flags %s of the runtime are refused, without their values', (options, named) => {
    expect(refusedNodeOptions(options)).toEqual(named);
    expect(refusedNodeOptions('', options.split(' '))).toEqual(named);
  });

  it.each([
    ['"--heapsnapshot\\-signal=SIGUSR2"', ['--heapsnapshot-signal']],
    ['"\\-\\-inspect"', ['--inspect']],
    ['--"inspect"=0', ['--inspect']],
    ['--ins""pect', ['--inspect']],
    ['--no-warnings "--repor"t-on-fatalerror', ['--report-on-fatalerror']],
    ['"--require=/opt/with space.js" --inspect', ['--inspect']],
    // Node would not start with these; we do not rely on it.
    ['"--inspect', ['--inspect']],
    ['"--inspect\\', ['--inspect']],
    ['--no-warnings\t--inspect', ['--inspect']],
  ])('the flags %s are found in NODE_OPTIONS as Node takes it apart', (options, named) => {
    expect(refusedNodeOptions(options)).toEqual(named);
  });

  it.each([
    ['--disable-proto=throw', ['--disable-proto=throw']],
    ['--disable_proto throw', ['--disable-proto=throw']],
    ['--disable-proto=delete', []],
    ['--disable-proto delete', []],
  ])('the flag %s is refused: a field named __proto__ would end the process', (options, named) => {
    expect(refusedNodeOptions(options)).toEqual(named);
    expect(refusedNodeOptions('', options.split(' '))).toEqual(named);
  });

  it('the flags of the image are allowed', () => {
    expect(refusedNodeOptions('', imageFlags())).toEqual([]);
  });

  it.each([
    '',
    '--max-semi-space-size=8 --heap-growing-percent=25 --max-old-space-size-percentage=60 --v8-pool-size=2',
    '--use-openssl-ca --tls-min-v1.3 --tls-cipher-list=TLS_AES_256_GCM_SHA384 --force-fips',
    '--import data:text/javascript,1 -r /opt/agent.js --conditions=production --expose-gc',
    '--disable-warning=ExperimentalWarning --no-deprecation --no-opt --stack-trace-limit=50',
    '--permission --allow-fs-read=* --allow-net',
    '"--require=/opt/with space --inspect.js"',
    '--snapshot-blob=app.blob',
    '--max-old-space-size=128',
    '--report-exclude-env',
    '--report-exclude-network',
    '--disable-sigusr1',
    '--no-warnings --use-system-ca --dns-result-order=ipv4first',
    '--enable-source-maps --require=/opt/inspect/--inspector.js',
  ])('the flags %s of the runtime are allowed', (options) => {
    expect(refusedNodeOptions(options)).toEqual([]);
  });
});

describe('variables of the runtime', () => {
  it.each([
    ['NODE_DEBUG', 'stream'],
    ['NODE_DEBUG', 'undici'],
    ['NODE_DEBUG', 'fetch,http'],
    ['NODE_DEBUG', 'child_process'],
    ['NODE_DEBUG', '*'],
    ['NODE_DEBUG', 'a-module-of-the-next-release'],
    ['NODE_DEBUG_NATIVE', 'http2'],
    ['NODE_V8_COVERAGE', '/tmp/coverage'],
    ['NODE_REDIRECT_WARNINGS', '/tmp/warnings'],
    ['NODE_REPL_HISTORY', '/tmp/history'],
    ['NODE_REPL_EXTERNAL_MODULE', '/tmp/module'],
    ['NODE_TEST_CONTEXT', 'child'],
    ['NODE_ONE_THAT_COMES_WITH_THE_NEXT_RELEASE', '1'],
    ['UNDICI_USE_MILO', '1'],
    ['SSLKEYLOGFILE', '/tmp/keys'],
    ['OPENSSL_TRACE', 'TLS'],
    ['REDIS_DEBUG_MAINTENANCE', '1'],
    ['GOOGLE_SDK_NODE_LOGGING', '*'],
    ['GRPC_TRACE', 'all'],
    ['DEBUG', '*'],
    ['DEBUG', 'true,*'],
    ['DEBUG', 'https-proxy-agent'],
  ])('the variable %s is refused by name, and its value %s is not repeated', (name, value) => {
    const refused = findRefusedVariable({ HOME: '/', [name]: value });
    expect(refused).toMatchObject({ name });
    expect(refused?.why).toContain(`${name}: not with a secret in memory`);
    expect(refused?.why.split(': ')[1]).toBe(
      'not with a secret in memory. It may print or write what the gateway reads and sends; of the names that Node and its libraries act on, only those that are known to write nothing of it are allowed',
    );
  });

  it('all variables that are refused are named together', () => {
    const why = findRefusedVariable({ NODE_DEBUG: 'x', NODE_ENV: 'x', NODE_V8_COVERAGE: 'x' })?.why;
    expect(why).toMatch(/^NODE_DEBUG, NODE_V8_COVERAGE: not/);
  });

  it.each([
    ['NODE_ENV', 'production'],
    ['NODE_EXTRA_CA_CERTS', '/etc/ssl/company.pem'],
    ['NODE_COMPILE_CACHE', '/app/.compile-cache'],
    ['NODE_TLS_REJECT_UNAUTHORIZED', '1'],
    ['NODE_OPTIONS', '--max-old-space-size=128'],
    ['NODE_PENDING_DEPRECATION', '1'],
    ['NODE_USE_SYSTEM_CA', '1'],
    ['UV_THREADPOOL_SIZE', '8'],
    ['UV_CACHE_DIR', '/tmp'],
    ['SSL_CERT_FILE', '/etc/ssl/company.pem'],
    // Of images, of Kubernetes' downward API, and of its services that are called node-….
    ['NODE_VERSION', '26.12.1'],
    ['NODE_NAME', 'worker-1'],
    ['NODE_EXPORTER_SERVICE_HOST', '10.0.0.1'],
    ['NODE_EXPORTER_SERVICE_PORT_METRICS', '9100'],
    ['NODE_EXPORTER_PORT', 'tcp://10.0.0.1:9100'],
    ['NODE_EXPORTER_PORT_9100_TCP_ADDR', '10.0.0.1'],
    ['DEBUG', 'true'],
    ['DEBUG', '0'],
    ['NODE_DEBUG', ''],
    ['NODE_V8_COVERAGE', ''],
  ])('the variable %s with the value "%s" is allowed', (name, value) => {
    expect(findRefusedVariable({ [name]: value })).toBeUndefined();
  });
});
