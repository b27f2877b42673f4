import { describe, expect, it } from 'vitest';
import { refusedNodeOptions } from '../../src/key/process-guard.ts';

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
  ])('%s are refused, without their values', (options, named) => {
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
  ])('%s are found in NODE_OPTIONS as Node takes it apart', (options, named) => {
    expect(refusedNodeOptions(options)).toEqual(named);
  });

  it.each([
    '',
    '"--require=/opt/with space --inspect.js"',
    '--snapshot-blob=app.blob',
    '--max-old-space-size=128',
    '--report-exclude-env',
    '--report-exclude-network',
    '--disable-sigusr1',
    '--no-warnings --use-system-ca --dns-result-order=ipv4first',
    '--enable-source-maps --require=/opt/inspect/--inspector.js',
  ])('%s work', (options) => {
    expect(refusedNodeOptions(options)).toEqual([]);
  });
});
