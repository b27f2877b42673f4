#!/usr/bin/env node
/** The executable: parses the command line and runs one command. What a command does not need is not loaded. */
import './commands/process-hardening.ts';
import { Command, CommanderError, InvalidArgumentError } from 'commander';
import { didYouMean } from './spelling-policy.ts';
import { version } from './version.ts';

const io = {
  stdout: (text: string) => void process.stdout.write(text),
  stderr: (text: string) => void process.stderr.write(text),
};

const program = new Command('analytics-gateway')
  .description(
    'Holds the API key of the Workspace Analytics API, so that no caller has to: callers use {gateway}/api in place of the base address.',
  )
  .version(version)
  .showHelpAfterError('(--help tells more)')
  .exitOverride();
refuseOtherWords(program);

let status = 0;

program
  .command('serve')
  .description('run the gateway in the foreground (default)')
  .addHelpText(
    'after',
    `
Settings come from the environment, and from .env where there is one. To begin with:
  UPSTREAM_BASE_URL=https://… UPSTREAM_API_KEY_FROM=file:/run/secrets/key analytics-gateway
"analytics-gateway settings" lists them all. SIGTERM or Ctrl-C drains, SIGHUP reads key, callers and certificate again.`,
  )
  .option('--env-file <path>', 'settings from this file (default: .env, where there is one)', onlyOnce)
  .action(async ({ envFile }: { envFile?: string }) => {
    const { serve } = await import('./commands/serve.ts');
    status = await serve(envFile);
  });

program
  .command('check')
  .description('try settings, key and upstream, and say in plain words what works')
  .option('--json', 'print the findings as JSON')
  .option('--workspace <name...>', 'only these of several; - is the unnamed one (default: each)')
  .option('--env-file <path>', 'settings from this file (default: .env, where there is one)', onlyOnce)
  .addHelpText(
    'after',
    '\nExit status: 0 all is well, 1 the key or the upstream is not, 2 a setting is wrong.',
  )
  .action(async ({ json, envFile, workspace }: { json?: true; envFile?: string; workspace?: string[] }) => {
    const { runCheck } = await import('./commands/run-check.ts');
    status = await runCheck({ json: json === true, envFile, workspaces: workspace });
  });

const token: Command = refuseOtherWords(
  program.command('token').description('callers, their tokens and what they may do, in the callers file'),
  hintForToken,
).addHelpText('after', () => `\nOptions of the commands:\n${token.commands.map(optionsOf).join('')}`);

tokenCommand('create <caller>', 'make a token for a caller, show it once, and add its digest to the file')
  .option('--expires <when>', 'a date such as 2027-01-01, days from now such as 30d, or never (default: 90d)')
  .option('--operation <name...>', 'what a new caller may do (default: list-accounts)')
  .option('--workspace <name...>', 'where a new caller may do it; - is the unnamed workspace')
  .addHelpText(
    'after',
    `
A caller that exists gets a second token, so that the first can be replaced without a gap.
Example: analytics-gateway token create reports-script --file callers.json`,
  )
  .action((name: string, options: CreateOptions) => {
    const { expires, operation: operations, workspace: workspaces } = options;
    return onCallersFile(options, ({ createToken }, file) =>
      createToken({ name, file, expires, operations, workspaces }, io),
    );
  });

tokenCommand('grant <caller> <operation...>', 'allow a caller further operations').action(
  (name: string, operations: string[], options: FileOption) =>
    onCallersFile(options, ({ grantOperations }, file) => grantOperations({ name, file, operations }, io)),
);

tokenCommand('deny <caller> <operation...>', 'take operations from a caller').action(
  (name: string, operations: string[], options: FileOption) =>
    onCallersFile(options, ({ denyOperations }, file) => denyOperations({ name, file, operations }, io)),
);

tokenCommand(
  'list',
  "names, the first characters of the tokens' digests, when they expire, and what each caller may do",
)
  .option('--json', 'print them as JSON')
  .action(({ json, ...options }: FileOption & { json?: true }) =>
    onCallersFile(options, ({ listTokens }, file) => listTokens({ file, json: json === true }, io)),
  );

tokenCommand(
  'revoke <caller> [digest]',
  'remove one token of a caller by the first characters of its digest, or all of them',
).action((name: string, digest: string | undefined, options: FileOption) =>
  onCallersFile(options, ({ revokeToken }, file) => revokeToken({ name, file, digest }, io)),
);

tokenCommand('remove <caller>', 'remove a caller with all its tokens and operations').action(
  (name: string, options: FileOption) =>
    onCallersFile(options, ({ removeNamedCaller }, file) => removeNamedCaller({ name, file }, io)),
);

interface FileOption {
  readonly file?: string;
}

interface CreateOptions extends FileOption {
  readonly expires?: string;
  readonly operation?: string[];
  readonly workspace?: string[];
}

function tokenCommand(usage: string, description: string): Command {
  return token
    .command(usage)
    .description(description)
    .option('--file <path>', 'the callers file (default: CALLERS_FILE)');
}

/** One command with its options, for the help of the commands above it. */
function optionsOf(command: Command): string {
  const words = command.registeredArguments.map((one) => {
    const name = `${one.name()}${one.variadic ? '...' : ''}`;
    return one.required ? `<${name}>` : `[${name}]`;
  });
  const options = command.options.map(
    ({ flags, description }) => `      ${flags.padEnd(24)}${description}\n`,
  );
  return `  ${[command.name(), ...words].join(' ')}\n${options.join('')}`;
}

async function onCallersFile(
  { file }: FileOption,
  run: (commands: typeof import('./commands/token.ts'), file: string | undefined) => Promise<number>,
): Promise<void> {
  const { callersFileOf } = await import('./commands/callers-rules.ts');
  status = await run(await import('./commands/token.ts'), await callersFileOf(file));
}

/** A word that is no command ends with status 2. It never becomes the argument of a default command. */
function refuseOtherWords(command: Command, hintFor: typeof didYouMean = didYouMean): Command {
  return command.on('command:*', ([given = '']: string[]) => {
    const word = given.slice(0, 80);
    const names = command.commands.map((one) => one.name());
    command.error(`error: unknown command '${word}'${hintFor(word, names)}`);
  });
}

/** Other programs' words for `remove`; by letters alone the nearest command would be another one. */
const removalWords = /^(?:rm|del|delete|destroy|drop|erase|purge|unregister)$/i;

/** Never names a command that would make a caller of the word: it may stand for a command. */
function hintForToken(word: string, names: Iterable<string>): string {
  if (removalWords.test(word)) return ' (did you mean "remove", or "revoke" for a token alone?)';
  return didYouMean(word, names) || ' (did you mean "create <caller>"?)';
}

/** @throws InvalidArgumentError for what is no count of gateways that one machine holds */
function toCount(text: string): number {
  if (!/^[1-9]$/.test(text)) throw new InvalidArgumentError('It is a number from 1 to 9.');
  return Number(text);
}

/** Node takes NODE_OPTIONS from each file of `--env-file`, and we would judge the last. @throws InvalidArgumentError */
function onlyOnce(path: string, before: string | undefined): string {
  if (before !== undefined) throw new InvalidArgumentError('It is given once.');
  return path;
}

program
  .command('demo')
  .description('serve against a stand-in upstream; needs no setting, and shows what to try')
  .option('--once', 'end after the show')
  .option('--traffic', 'three callers keep asking, one of them greedily, and the upstream limits requests')
  .option(
    '--gateways <count>',
    'so many share a Valkey or Redis server that it starts; with the traffic',
    toCount,
  )
  .action(async ({ once, traffic, gateways }: { once?: true; traffic?: true; gateways?: number }) => {
    const { demo } = await import('./commands/demo.ts');
    status = await demo({ once: once === true, traffic: traffic === true, gateways: gateways ?? 1 });
  });

program
  .command('settings')
  .description('list every setting with its default and meaning')
  .option('--json', 'print them as JSON')
  .action(async ({ json }: { json?: true }) => {
    const { listSettings } = await import('./commands/settings.ts');
    process.stdout.write(listSettings({ json: json === true }));
  });

program
  .command('healthcheck')
  .description("ask the gateway's own /readyz; for images without curl")
  .option('--env-file <path>', 'settings from this file (default: .env, where there is one)', onlyOnce)
  .action(async ({ envFile }: { envFile?: string }) => {
    const { healthcheck } = await import('./commands/healthcheck.ts');
    status = await healthcheck(envFile);
  });

// The reader of the output has gone (`demo | head`): nothing is left to do.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(status);
});

try {
  const words = process.argv.slice(2);
  await program.parseAsync(words.length === 0 ? ['serve'] : words, { from: 'user' });
} catch (error) {
  // Help and version are thrown as well, with status 0; anything else the command line got wrong is usage.
  if (error instanceof CommanderError) status = error.exitCode === 0 ? 0 : 2;
  else {
    const { reportStartFailure } = await import('./commands/start-failure.ts');
    status = await reportStartFailure(error);
  }
}
process.exitCode = status;
