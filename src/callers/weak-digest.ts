/**
 * Finds digests of tokens that somebody could guess, to say so when they are enrolled. The file holds digests
 * only, so the one way to know a weak token is to guess it ourselves. None of them would ever be recognised
 * (`mayBeToken`): this is a courtesy to whoever wrote the file, and so it stays cheap.
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

/** Those of the digests that belong to an empty, very short or common token. */
export function weakDigests(digests: ReadonlySet<string>): ReadonlySet<string> {
  const weak = new Set<string>();
  if (digests.size === 0) return weak;
  for (const guess of guesses()) {
    const digest = digestOf(guess);
    if (digests.has(digest)) weak.add(digest);
  }
  return weak;
}
