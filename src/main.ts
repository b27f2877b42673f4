#!/usr/bin/env node
/** The executable. */
import './commands/process-hardening.ts';
import { runCommandLine } from './commands/command-line.ts';

// The reader of the output has gone (`demo | head`): nothing is left to do.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

process.exitCode = await runCommandLine(process.argv.slice(2), {
  stdout: (text) => void process.stdout.write(text),
  stderr: (text) => void process.stderr.write(text),
});
