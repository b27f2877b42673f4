/** What a part of `npm run prove` counts and prints. A part that is no TypeScript prints such rows by itself. */
import { execFileSync } from 'node:child_process';

/** `npm run prove` puts the part's name before each row. */
export const tableHead = `| part | suite | version | cases | passed | left out, and why |
|---|---|---|---|---|---|`;

/** Whether a row of the table says that every case passed. */
export function isPassed(row: string): boolean {
  const [passed, cases] = row.split('|').slice(1, -1).reverse().slice(1, 3).map(Number);
  return cases === passed && cases !== undefined && cases > 0;
}

/** One program of others, and the cases that are tried with it. */
export class Suite {
  readonly #name: string;
  readonly #version: string;
  readonly #leftOut: string;
  #cases = 0;
  #passed = 0;

  /** @param leftOut what of the suite is not tried, and why */
  constructor(name: string, version: string, leftOut = 'nothing') {
    this.#name = name;
    this.#version = version;
    this.#leftOut = leftOut;
  }

  /** Tries one case, which throws where it does not pass, and prints what it threw. */
  async try(name: string, run: () => unknown): Promise<void> {
    this.#cases += 1;
    try {
      await run();
      this.#passed += 1;
    } catch (error) {
      process.stdout.write(
        `${this.#name}: ${name}: FAILED: ${error instanceof Error ? error.message : error}\n`,
      );
    }
  }

  /** Adds cases that another program has counted. */
  count(cases: number, passed: number): void {
    this.#cases += cases;
    this.#passed += passed;
  }

  /** Prints the row. */
  end(): void {
    const cells = [this.#name, this.#version, this.#cases, this.#passed, this.#leftOut];
    process.stdout.write(`| ${cells.join(' | ')} |\n`);
    if (this.#passed < this.#cases) process.exitCode = 1;
  }
}

/** The version of a Debian package whose programs do not tell theirs. */
export function packageVersion(name: string): string {
  return execFileSync('dpkg-query', ['-W', name], { encoding: 'utf8' }).trim().split('\t')[1] ?? '?';
}
