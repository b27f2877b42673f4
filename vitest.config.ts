import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    restoreMocks: true,
    // What is promised to come, but not when, is waited for patiently.
    maxWorkers: 2,
    expect: { poll: { timeout: 20_000 } },
    // Whole-gateway tests wait for real processes and sockets; a slow machine must not fail them.
    testTimeout: 30_000,
  },
});
