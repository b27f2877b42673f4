import { defineConfig } from 'vitest/config';

/** The tests that own the rules of one file: `bench/prove/mutants.ts` names them. */
export default defineConfig({
  test: { restoreMocks: true, testTimeout: 30_000, include: (process.env['MUTANT_TESTS'] ?? '').split(',') },
});
