#!/usr/bin/env node
/** The executable: parses the command line and runs one command. What a command does not need is not loaded. */
import './commands/guard.ts';
import { Command, CommanderError, Option } from 'commander';
import { version } from './version.ts';

const program = new Command('analytics-gateway')
  .description(
    'Holds the API key of the Workspace Analytics API, so that no caller has to: callers use {gateway}/api in place of the base address.',
  )
  .version(version)
  .showHelpAfterError('(--help tells more)')
  .exitOverride();

let status = 0;

program
  .command('serve', { isDefault: true })
  .description('run the gateway in the foreground (default)')
  .addHelpText(
    'after',
    `
Settings come from the environment, and from .env where there is one. To begin with:
  UPSTREAM_BASE_URL=https://… UPSTREAM_API_KEY_FROM=file:/run/secrets/key analytics-gateway
"analytics-gateway settings" lists them all. SIGTERM or Ctrl-C drains, SIGHUP reads key and callers again.`,
  )
  .action(async () => {
    const { serve } = await import('./commands/serve.ts');
    status = await serve();
  });

program
  .command('check')
  .description('try settings, key and upstream, and say in plain words what works')
  .option('--json', 'print the findings as JSON')
  .addHelpText(
    'after',
    '\nExit status: 0 all is well, 1 the key or the upstream is not, 2 a setting is wrong.',
  )
  .action(async ({ json }: { json?: true }) => {
    const { runCheck } = await import('./commands/run-check.ts');
    status = await runCheck({ json: json === true });
  });

const callersFile = new Option('--file <path>', 'the callers file (default: CALLERS_FILE)');

const token = program
  .command('token')
  .description("make, list and revoke callers' tokens in the callers file");

token
  .command('create <caller>', { isDefault: true })
  .description('make a token for a caller, show it once, and add its digest to the file')
  .addOption(callersFile)
  .option('--expires <when>', 'a date such as 2027-01-01, or days from now such as 90d')
  .option('--operation <name...>', 'what a new caller may do (default: list-accounts)')
  .addHelpText('after', '\nExample: analytics-gateway token reports-script --file callers.json --expires 90d')
  .action(async (name: string, options: { file?: string; expires?: string; operation?: string[] }) => {
    const { callersFileOf } = await import('./commands/callers-rules.ts');
    const { createToken } = await import('./commands/token.ts');
    const { expires, operation: operations } = options;
    const file = await callersFileOf(options.file);
    status = await createToken({ name, file, expires, operations }, io);
  });

token
  .command('list')
  .description("names, the first characters of the tokens' digests, and when they expire")
  .addOption(callersFile)
  .action(async ({ file }: { file?: string }) => {
    const { callersFileOf } = await import('./commands/callers-rules.ts');
    const { listTokens } = await import('./commands/token.ts');
    status = await listTokens({ file: await callersFileOf(file) }, io);
  });

token
  .command('revoke <caller> [digest]')
  .description('remove one token of a caller by the first characters of its digest, or all of them')
  .addOption(callersFile)
  .action(async (name: string, digest: string | undefined, { file }: { file?: string }) => {
    const { callersFileOf } = await import('./commands/callers-rules.ts');
    const { revokeToken } = await import('./commands/token.ts');
    status = await revokeToken({ name, file: await callersFileOf(file), digest }, io);
  });

program
  .command('demo')
  .description('serve against a stand-in upstream; needs no setting, and shows what to try')
  .option('--once', 'end after the show')
  .action(async ({ once }: { once?: true }) => {
    const { demo } = await import('./commands/demo.ts');
    status = await demo({ once: once === true });
  });

program
  .command('settings')
  .description('list every setting with its default and meaning')
  .action(async () => {
    const { listSettings } = await import('./commands/settings.ts');
    process.stdout.write(listSettings());
  });

program
  .command('healthcheck')
  .description("ask the gateway's own /readyz; for images without curl")
  .action(async () => {
    const { healthcheck } = await import('./commands/healthcheck.ts');
    status = await healthcheck();
  });

const io = {
  stdout: (text: string) => void process.stdout.write(text),
  stderr: (text: string) => void process.stderr.write(text),
};

// Whoever read what is printed has gone (`demo | head`): there is nobody left to tell.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(status);
});

try {
  await program.parseAsync();
} catch (error) {
  // Help and version are thrown as well, with status 0; anything else the command line got wrong is usage.
  if (error instanceof CommanderError) status = error.exitCode === 0 ? 0 : 2;
  else {
    const { reportStartFailure } = await import('./commands/start-failure.ts');
    status = reportStartFailure(error);
  }
}
process.exitCode = status;
