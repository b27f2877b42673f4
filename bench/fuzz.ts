/**
 * Fuzzes the built gateway with the image's flags.
 *
 *   npm run fuzz [-- --minutes M | --cases N] [--seed S]
 *   npm run fuzz -- --seed S --only CASE      runs one case again, and shows what came
 *
 * Exit status 1 where something is not as promised; each finding is printed with what is needed to see it again.
 */
import { parseArgs } from 'node:util';
import { reportOf } from './fuzz/report.ts';
import { fuzz } from './fuzz/run.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    cases: { type: 'string' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    only: { type: 'string' },
  },
});

function numberOf(name: 'minutes' | 'cases' | 'seed' | 'only'): number | undefined {
  const text = values[name];
  if (text === undefined) return undefined;
  const number = Number(text);
  if (!(number >= 0)) throw new TypeError(`--${name} is a number`);
  return number;
}

const seed = numberOf('seed') ?? 0;
const [minutes, cases, only] = [numberOf('minutes'), numberOf('cases'), numberOf('only')];
process.stdout.write(`fuzz: --seed ${seed}\n`);
const result = await fuzz({
  seed,
  ...(cases === undefined ? {} : { cases }),
  ...(only === undefined ? {} : { only }),
  ...(cases === undefined ? { forMs: (minutes ?? 1) * 60_000 } : {}),
});
process.stdout.write(reportOf(seed, result));
if (result.violations.length > 0) process.exitCode = 1;
