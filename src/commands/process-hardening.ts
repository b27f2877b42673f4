/**
 * Keeps the process from being opened while it holds a secret. `main.ts` imports it before everything else: its
 * side effect must come first.
 */
import { fatalFlag, refusedNodeOptions, storeCommandMark } from '../key/process-hardening.ts';

// Node would open its inspector, through which anyone on this host could read the key: from the first moment on.
process.on('SIGUSR1', () => {});

/**
 * Run first by each command that holds the key. Closes an inspector that a signal opened before we could look.
 *
 * @returns why nothing may start, in one line; `undefined` where all is well
 */
export async function hardenProcess(): Promise<string | undefined> {
  // With a .env it would find the same command there, and start itself for ever, each in a group of its own.
  if (process.env[storeCommandMark] !== undefined) {
    return 'started by a gateway as the command of its own exec: store. Name a command that prints the key';
  }
  const { default: inspector } = await import('node:inspector');
  const flags = refusedNodeOptions(process.env['NODE_OPTIONS'] ?? '', process.execArgv);
  if (flags.includes(fatalFlag)) {
    return `${fatalFlag}: a request with a field named __proto__ would end the process. Use --disable-proto=delete`;
  }
  if (flags.length > 0) {
    return `${flags.join(', ')}: not with a secret in memory. Inspectors, reports, snapshots and profiles would show it; only flags that are known to write nothing of it are allowed`;
  }
  if (/\*|\bchild_process\b/i.test(process.env['NODE_DEBUG'] ?? '')) {
    return 'NODE_DEBUG: with child_process or * it prints the environment and the arguments of commands, secrets among them';
  }
  if (inspector.url() !== undefined) inspector.close();
  if (process.env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    return 'NODE_TLS_REJECT_UNAUTHORIZED=0: the key would go to any server that answers. Trust a private authority with NODE_EXTRA_CA_CERTS instead';
  }
  return undefined;
}
