import { defineConfig } from 'vitest/config';

/** What these do or count concerns all of their process, so each has a process to itself. */
const alone = [
  // Replaces a module of the gateway.
  'test/promises/own-routes.test.ts',
  // Counts the promises and the bytes that a hit costs.
  'test/promises/cost.test.ts',
  // Looks for listeners of diagnostics channels.
  'test/promises/secrecy-memory.test.ts',
];

export default defineConfig({
  test: {
    restoreMocks: true,
    globalSetup: 'test/support/image.ts',
    maxWorkers: 3,
    // What is promised to come, but not when, is waited for patiently.
    expect: { poll: { timeout: 20_000 } },
    // Whole-gateway tests wait for real processes and sockets; a slow machine must not fail them.
    testTimeout: 30_000,
    hookTimeout: 30_000,
    projects: [
      { extends: true, test: { name: 'alone', include: alone } },
      {
        extends: true,
        test: {
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: [...alone, '**/node_modules/**'],
          // Every file of a process imports the gateway but once.
          isolate: false,
        },
      },
    ],
  },
});
