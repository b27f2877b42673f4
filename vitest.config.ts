import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    restoreMocks: true,
    // Whole-gateway tests wait for real processes and sockets; a slow machine must not fail them.
    testTimeout: 30_000,
  },
});
