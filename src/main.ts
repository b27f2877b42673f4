#!/usr/bin/env node
/** The executable. */
import './commands/process-hardening.ts';
import { runCommandLine } from './commands/command-line.ts';

// The reader of the output has gone (`demo | head`): nothing is left to do.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

// Process 1 of a container gets no signal that it does not listen to, and a command may listen later or not at all.
for (const [signal, status] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const]) {
  process.once(signal, () => {
    if (process.listenerCount(signal) > 0) return;
    process.emit('exit', status);
    // An exit waits for the reads under way, and that of a pipe may never end. Process 1 alone outlives its own signal.
    process.kill(process.pid, signal);
    process.exit(status);
  });
}

process.exitCode = await runCommandLine(process.argv.slice(2), {
  stdout: (text) => void process.stdout.write(text),
  stderr: (text) => void process.stderr.write(text),
});
