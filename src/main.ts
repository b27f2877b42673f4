#!/usr/bin/env node
/**
 * The executable. Nothing is imported before Node is known to be new enough: an older one would fail somewhere in between,
 * with words that name no cause. So what stands here is for any Node from 16 on.
 */

// Node would open its inspector, through which anyone on this host could read the key: from the first moment on.
process.on('SIGUSR1', () => {});

/** As `engines` in package.json has it; a test compares. */
const [leastMajor, leastMinor] = [22, 19];
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);

if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) await main();
else {
  process.stderr.write(
    `analytics-gateway: Node ${leastMajor}.${leastMinor} or later is needed, and ${process.execPath} is ${process.versions.node}. ` +
      'Install a newer one there. In a checkout, "npm ci" brings one and "npx analytics-gateway" runs on it.\n',
  );
  process.exitCode = 2;
}

async function main(): Promise<void> {
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

  try {
    const { runCommandLine } = await import('./commands/command-line.ts');
    process.exitCode = await runCommandLine(process.argv.slice(2), {
      stdout: (text) => void process.stdout.write(text),
      stderr: (text) => void process.stderr.write(text),
    });
  } catch (error) {
    // Not even the part that says why could be read, as where no descriptor is free.
    const why = error instanceof Error ? error.message : 'an unknown failure';
    process.stderr.write(`analytics-gateway cannot start:\n  ${why}\n`);
    process.exitCode = 1;
  }
}
