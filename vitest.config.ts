import { defineConfig } from 'vitest/config';

/** Each has a process to itself. Vitest begins with these. */
const alone = [
  // These wait for most of their time, and would be the last of a first run, which begins with the largest files.
  'test/key/cloud-libraries.test.ts',
  'test/bench/fleet-faults.test.ts',
  'test/promises/fuzz.test.ts',
  'test/browser/picture.test.ts',
  // What these do or count concerns all of their process. This one replaces a module of the gateway,
  'test/promises/own-routes.test.ts',
  // this one counts the promises and the bytes that a hit costs,
  'test/promises/cost.test.ts',
  // this one looks for listeners of diagnostics channels,
  'test/promises/secrecy-memory.test.ts',
  // this one counts the steps of code that it has to import first,
  'test/key/search.test.ts',
  // and this one counts what the garbage collector keeps.
  'test/gate/scheduler.test.ts',
];

export default defineConfig({
  test: {
    restoreMocks: true,
    globalSetup: 'test/support/image.ts',
    // Many tests wait for processes, timers and each other's sockets: two cores keep as many as eight workers busy.
    maxWorkers: 8,
    // What is promised to come, but not when, is waited for patiently.
    setupFiles: 'test/support/patience.ts',
    expect: { poll: { timeout: 60_000 } },
    // Whole-gateway tests wait for real processes and sockets; a slow machine must not fail them.
    testTimeout: 120_000,
    hookTimeout: 120_000,
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
