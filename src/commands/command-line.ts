/**
 * The command line: which commands there are, their options, and what is said of wrong words. What a command does not
 * need is not loaded.
 */
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { didYouMean, settingMeant } from '../config/misspellings.ts';
import { version } from '../version.ts';
import type { TokenExit, TokenIo } from './token-file.ts';

/** Takes the exit status of the command that ran. */
type Ended = (status: number) => void;

/**
 * Runs one command to its end.
 *
 * @param words what stands after the program; none mean `serve`, and so do options without a command
 * @param io where help, usage and the commands about callers and settings write
 * @returns the exit status: 2 for wrong usage, else the command's own
 */
export async function runCommandLine(words: readonly string[], io: TokenIo): Promise<number> {
  let status = 0;
  const ended: Ended = (of) => {
    status = of;
  };
  const program = new Command('analytics-gateway')
    .description(
      'Holds the API key of the Workspace Analytics API, so that no caller has to: callers use {gateway}/api in place of the base address.',
    )
    .version(version)
    .showHelpAfterError('(--help tells more)')
    .configureOutput({
      writeOut: io.stdout,
      writeErr: io.stderr,
      outputError: (text, write) => write(inOurWords(text, words, program)),
    })
    .exitOverride();
  refuseOtherWords(program);
  addServe(program, ended);
  addCheck(program, ended);
  addToken(program, io, ended);
  addExplain(program, io, ended);
  addDemo(program, ended);
  addSettings(program, io);
  addHealthcheck(program, ended);
  try {
    await program.parseAsync(meansServe(words) ? ['serve', ...words] : words, { from: 'user' });
    return status;
  } catch (error) {
    // Help and version are thrown as well, with status 0; anything else the command line got wrong is usage.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const { reportStartFailure } = await import('./start-problems.ts');
    return await reportStartFailure(error);
  }
}

/** Options of `serve` need no word before them. Those of the program itself have no command. */
function meansServe([first]: readonly string[]): boolean {
  return first === undefined || (/^-./.test(first) && !/^(?:-h|--help|-V|--version|--)$/.test(first));
}

/** What commander says of a command line, and what to do. Never with what stands behind `=`: it may be the key. */
function inOurWords(text: string, words: readonly string[], { commands }: Command): string {
  const flag = /^error: unknown option '(-[^'=]*)/.exec(text)?.[1];
  if (flag !== undefined) {
    const similar = /\n(\(Did you mean .*\)\n)/.exec(text)?.[1];
    if (similar !== undefined) return `error: unknown option '${flag}'\n${similar}`;
    const meant = flag.startsWith('--') ? settingMeant(flag.slice(2)) : undefined;
    return `error: unknown option '${flag}'${meant === undefined ? settingsHint : `: ${settingHint(meant)}\n`}`;
  }
  const excess = /^(error: too many arguments.*): (.*)\.\n$/.exec(text);
  if (excess === null) return text;
  const [, said, given = ''] = excess;
  const names = commands.map((one) => one.name());
  const command = meansServe(words) ? words.find((word) => names.includes(word)) : undefined;
  if (command !== undefined) {
    return `error: the command stands before its options: analytics-gateway ${command} --…\n`;
  }
  const [name = '', value] = given.split('=', 2);
  const meant = value === undefined ? undefined : settingMeant(name);
  return meant === undefined ? `${said}: ${name}.\n` : `error: no argument: ${settingHint(meant)}\n`;
}

const settingsHint =
  '. Settings are no options: they stand in the environment or in .env ("analytics-gateway settings" lists them)\n';

function settingHint(name: string): string {
  return `${name} is a setting. It stands in the environment or in .env, as ${name}=…; "analytics-gateway settings ${name}" tells more`;
}

function addServe(program: Command, ended: Ended): void {
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
    .addOption(envFileOption())
    .action(async ({ envFile }: { envFile?: string }) => {
      const { serve } = await import('./serve.ts');
      ended(await serve(envFile));
    });
}

function addCheck(program: Command, ended: Ended): void {
  program
    .command('check')
    .description('try settings, key and upstream, and say in plain words what works')
    .option('--json', 'print the findings as JSON')
    .option('--workspace <name...>', 'only these of several; - is the unnamed one (default: each)')
    .addOption(envFileOption())
    .addHelpText(
      'after',
      '\nExit status: 0 all is well, 1 the key or the upstream is not, 2 a setting is wrong.',
    )
    .action(async ({ json, envFile, workspace }: { json?: true; envFile?: string; workspace?: string[] }) => {
      const { runCheck } = await import('./run-check.ts');
      ended(await runCheck({ json: json === true, envFile, workspaces: workspace }));
    });
}

function addToken(program: Command, io: TokenIo, ended: Ended): void {
  const token: Command = refuseOtherWords(
    program.command('token').description('callers, their tokens and what they may do, in the callers file'),
    hintForToken,
  ).addHelpText(
    'after',
    () =>
      `\nOptions of the commands:\n${token.commands.map(optionsOf).join('')}  all of them\n${optionLines(commonOptions())}`,
  );

  addCreate(token, io, ended);

  addTo(token, 'grant <caller> <operation...>', 'allow a caller further operations').action(
    (name: string, operations: string[], options: FileOption) =>
      onCallersFile(options, io, ended, ({ grantOperations }, file) =>
        grantOperations({ name, file, operations }, io),
      ),
  );

  addTo(token, 'deny <caller> <operation...>', 'take operations from a caller').action(
    (name: string, operations: string[], options: FileOption) =>
      onCallersFile(options, io, ended, ({ denyOperations }, file) =>
        denyOperations({ name, file, operations }, io),
      ),
  );

  addTo(token, 'set <caller>', 'set limits, weight or workspaces of a caller that exists')
    .option('--limit <limits>', 'as 20/1s,5000/1d: so many requests in each window; or none')
    .option('--weight <number>', "share of the upstream's limit, 0.01 to 100")
    .option('--workspace <name...>', 'where it may read; - is the unnamed workspace')
    .action((name: string, { limit, weight, workspace: workspaces, ...options }: SetOptions) =>
      onCallersFile(options, io, ended, ({ setCaller }, file) =>
        setCaller({ name, file, limit, weight, workspaces }, io),
      ),
    );

  addTo(token, 'whose', 'read a token on standard input, and say whose it is').action((options: FileOption) =>
    onCallersFile(options, io, ended, ({ tellWhose }, file) => tellWhose({ file }, io, readStandardInput)),
  );

  addTo(
    token,
    'list',
    "names, the first characters of the tokens' digests, when they expire, and what each caller may do",
  )
    .option('--json', 'print them as JSON')
    .action(({ json, ...options }: FileOption & { json?: true }) =>
      onCallersFile(options, io, ended, ({ listTokens }, file) =>
        listTokens({ file, json: json === true }, io),
      ),
    );

  addTo(
    token,
    'revoke <caller> [digest]',
    'remove one token of a caller by the first characters of its digest, or all of them',
  ).action((name: string, digest: string | undefined, options: FileOption) =>
    onCallersFile(options, io, ended, ({ revokeToken }, file) => revokeToken({ name, file, digest }, io)),
  );

  addTo(token, 'remove <caller>', 'remove a caller with all its tokens and operations').action(
    (name: string, options: FileOption) =>
      onCallersFile(options, io, ended, ({ removeNamedCaller }, file) =>
        removeNamedCaller({ name, file }, io),
      ),
  );
}

function addCreate(token: Command, io: TokenIo, ended: Ended): void {
  addTo(token, 'create <caller>', 'make a token for a caller, show it once, and add its digest to the file')
    .option(
      '--expires <when>',
      'a date such as 2027-01-01, days from now such as 30d, or never (default: 90d)',
    )
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
      return onCallersFile(options, io, ended, ({ createToken }, file) =>
        createToken({ name, file, expires, operations, workspaces }, io),
      );
    });
}

interface FileOption {
  readonly file?: string;
  readonly envFile?: string;
}

interface CreateOptions extends FileOption {
  readonly expires?: string;
  readonly operation?: string[];
  readonly workspace?: string[];
}

interface SetOptions extends FileOption {
  readonly limit?: string;
  readonly weight?: string;
  readonly workspace?: string[];
}

async function readStandardInput(): Promise<string> {
  const { text } = await import('node:stream/consumers');
  return text(process.stdin);
}

function addTo(token: Command, usage: string, description: string): Command {
  const command = token.command(usage).description(description);
  for (const option of commonOptions()) command.addOption(option);
  return command;
}

/** Of each command about the callers file. */
function commonOptions(): Option[] {
  return [fileOption(), envFileOption()];
}

/** One command with the options that are its own, for the help of the commands above it. */
function optionsOf(command: Command): string {
  const words = command.registeredArguments.map((one) => {
    const name = `${one.name()}${one.variadic ? '...' : ''}`;
    return one.required ? `<${name}>` : `[${name}]`;
  });
  const common = commonOptions().map(({ flags }) => flags);
  const own = command.options.filter(({ flags }) => !common.includes(flags));
  return `  ${[command.name(), ...words].join(' ')}\n${optionLines(own)}`;
}

function optionLines(options: readonly Option[]): string {
  return options.map(({ flags, description }) => `      ${flags.padEnd(24)}${description}\n`).join('');
}

async function onCallersFile(
  { file, envFile }: FileOption,
  io: TokenIo,
  ended: Ended,
  run: (
    commands: typeof import('./token.ts') & typeof import('./token-list.ts'),
    file: string | undefined,
  ) => Promise<TokenExit>,
): Promise<void> {
  const { callersFileOf, runTokenCommand } = await import('./token-file.ts');
  const commands = { ...(await import('./token.ts')), ...(await import('./token-list.ts')) };
  ended(await runTokenCommand({ file }, io, async () => run(commands, await callersFileOf(file, envFile))));
}

function addExplain(program: Command, io: TokenIo, ended: Ended): void {
  program
    .command('explain <caller> <method> <path>')
    .description('say whether a request would pass, which rule decides, and what would go up; sends nothing')
    .option('--origin <origin>', 'that of the page which sends it')
    .option('--workspace <name>', 'in this one of several; - is the unnamed one')
    .option('--json', 'print it as JSON')
    .addOption(fileOption())
    .addOption(envFileOption())
    .addHelpText(
      'after',
      '\nExit status: 0 it would pass, 1 it would not.\nExample: analytics-gateway explain reports-script GET "/api/analytics/accounts/?page=2"',
    )
    .action(async (caller: string, method: string, path: string, { json, ...options }: ExplainFlags) => {
      const { explain } = await import('./explain.ts');
      ended(await explain({ caller, method, path, json: json === true, ...options }, io));
    });
}

interface ExplainFlags {
  readonly origin?: string;
  readonly workspace?: string;
  readonly json?: true;
  readonly file?: string;
  readonly envFile?: string;
}

function addDemo(program: Command, ended: Ended): void {
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
      const { demo } = await import('./demo.ts');
      ended(await demo({ once: once === true, traffic: traffic === true, gateways: gateways ?? 1 }));
    });
}

function addSettings(program: Command, io: TokenIo): void {
  program
    .command('settings [name...]')
    .description('list every setting with its default and meaning, or only those that are named')
    .option('--json', 'print them as JSON')
    .action(async (names: string[], { json }: { json?: true }, command: Command) => {
      const { listSettings } = await import('./settings.ts');
      const listed = listSettings({ names, json: json === true });
      if ('problem' in listed) command.error(`error: ${listed.problem}`);
      io.stdout(listed.text);
    });
}

function addHealthcheck(program: Command, ended: Ended): void {
  program
    .command('healthcheck')
    .description("ask the gateway's own /readyz; for images without curl")
    .addOption(envFileOption())
    .action(async ({ envFile }: { envFile?: string }) => {
      const { healthcheck } = await import('./healthcheck.ts');
      ended(await healthcheck(envFile));
    });
}

/** A word that is no command ends with status 2. It never becomes the argument of a default command. */
function refuseOtherWords(command: Command, hintFor: typeof didYouMean = didYouMean): Command {
  return command.on('command:*', ([given = '']: string[]) => {
    // Behind the sign there may be a key.
    const [word = '', value] = given.slice(0, 80).split('=', 2);
    const meant = value === undefined ? undefined : settingMeant(word);
    if (meant !== undefined) command.error(`error: no command: ${settingHint(meant)}`);
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

function fileOption(): Option {
  return new Option('--file <path>', 'the callers file (default: CALLERS_FILE)');
}

function envFileOption(): Option {
  const meaning = 'settings from this file (default: .env, where there is one)';
  return new Option('--env-file <path>', meaning).argParser(onlyOnce);
}

/** Node takes NODE_OPTIONS from each file of `--env-file`, and we would judge the last. @throws InvalidArgumentError */
function onlyOnce(path: string, before: string | undefined): string {
  if (before !== undefined) throw new InvalidArgumentError('It is given once.');
  return path;
}
