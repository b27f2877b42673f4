import { expect, it } from 'vitest';
import { reportOf } from '../../bench/fuzz/report.ts';
import { fuzz } from '../../bench/fuzz/run.ts';

// Always the same cases: a run that fails here fails again. `npm run fuzz` looks for new ones.
const seed = Number(process.env['FUZZ_SEED'] ?? 1);
const cases = Number(process.env['FUZZ_CASES'] ?? 384);

it(`the built gateway keeps its promises whatever callers and the upstream send (FUZZ_SEED=${seed})`, {
  timeout: 180_000,
}, async () => {
  const result = await fuzz({ seed, cases });
  expect(result.violations.length, reportOf(seed, result)).toBe(0);
  expect(result.cases).toBe(cases);
  // The cases get to where answers are made, and not only to the parser.
  for (const status of ['200', '304', '400', '401', '404', '405', '502']) {
    expect(result.replies.get(status) ?? 0, status).toBeGreaterThan(0);
  }
});
