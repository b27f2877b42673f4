/**
 * Finds digests of tokens that can be guessed, to say so when they are added. The file holds digests only, so the one
 * way to know a weak token is to guess it. None of them is ever accepted (`mayBeToken`): this only warns the author of
 * the file why. It takes 30 ms and 3 MiB, so it is imported where it is asked, and never at the start.
 */
import { digestOf } from './token.ts';

const words =
  'password passwort passwd secret token test testing admin administrator root user guest default changeme ' +
  'change-me changeit letmein welcome qwerty abc123 iloveyou example sample demo dev development staging prod ' +
  'production local localhost api apikey api-key api_key key mykey mytoken my-token bearer auth hunter2 ' +
  'gateway analytics analytics-gateway workspace reports reports-script null undefined none true false foo ' +
  'bar foobar todo xxx hello world temp 12345 123456 1234567 12345678 123456789 1234567890 111111 000000';
const endings = [
  '',
  '1',
  '12',
  '123',
  '1234',
  '!',
  '-token',
  '_token',
  '-secret',
  '-key',
  '2024',
  '2025',
  '2026',
];

function* guesses(): Generator<string> {
  yield '';
  const printable = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index));
  const alphanumeric = printable.filter((character) => /[A-Za-z0-9]/.test(character));
  for (const first of printable) {
    yield first;
    yield first.repeat(8);
    yield first.repeat(16);
    yield first.repeat(32);
    yield first.repeat(64);
    for (const second of alphanumeric) if (alphanumeric.includes(first)) yield first + second;
  }
  for (let digits = 3; digits <= 4; digits++) {
    for (let value = 0; value < 10 ** digits; value++) yield String(value).padStart(digits, '0');
  }
  for (const word of words.split(' ')) {
    for (const ending of endings) {
      const guess = word + ending;
      yield guess;
      // With the line break that `echo secret | sha256sum` adds.
      yield `${guess}\n`;
      yield guess.toUpperCase();
      yield guess.charAt(0).toUpperCase() + guess.slice(1);
    }
  }
}

/**
 * A problem for each digest of an empty, very short or common token.
 *
 * @param digestPaths digests in lower case, each with its path in the file
 */
export function guessableTokenProblems(digestPaths: ReadonlyMap<string, string>): readonly string[] {
  if (digestPaths.size === 0) return [];
  const paths = new Set<string>();
  for (const guess of guesses()) {
    const path = digestPaths.get(digestOf(guess));
    if (path !== undefined) paths.add(path);
  }
  return [...paths].map(
    (path) => `${path}: belongs to a token that can be guessed; make one with the token command`,
  );
}
