import { defineConfig } from 'vitest/config';

/** Files that start the whole gateway, processes or a browser keep a process to themselves. */
const whole = ['test/promises/**/*.test.ts', 'test/browser/**/*.test.ts'];

export default defineConfig({
  test: {
    restoreMocks: true,
    maxWorkers: 3,
    // What is promised to come, but not when, is waited for patiently.
    expect: { poll: { timeout: 20_000 } },
    // Whole-gateway tests wait for real processes and sockets; a slow machine must not fail them.
    testTimeout: 30_000,
    hookTimeout: 30_000,
    projects: [
      { extends: true, test: { name: 'whole', include: whole } },
      {
        extends: true,
        test: {
          name: 'parts',
          include: ['test/**/*.test.ts'],
          exclude: [...whole, '**/node_modules/**'],
          isolate: false,
        },
      },
    ],
  },
});
