import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  addCaller,
  addToken,
  CallersTextError,
  findCaller,
  listCallers,
  removeCaller,
  removeTokens,
  setMembers,
} from '../../src/callers/callers-text.ts';

const digest = (number: number): string => String(number).padStart(64, '0');

/** A file as people and programs lay it out: any indentation, also none, and blanks before commas and brackets. */
interface Layout {
  readonly indent: string | number;
  readonly loose: boolean;
  readonly windows: boolean;
}

const layouts: fc.Arbitrary<Layout> = fc.record({
  indent: fc.constantFrom<string | number>(0, 1, 2, 4, '\t'),
  loose: fc.boolean(),
  windows: fc.boolean(),
});

function laidOut(value: unknown, { indent, loose, windows }: Layout): string {
  let text = JSON.stringify(value, null, indent);
  if (loose) text = text.replaceAll(/([,\]}])/g, ' $1').replaceAll(/([[{:])/g, '$1 ');
  return windows ? text.replaceAll('\n', '\r\n') : text;
}

const callers = fc.uniqueArray(
  fc.record(
    {
      name: fc.constantFrom('a', 'b', 'c', 'd'),
      tokens: fc.array(
        fc.nat(20).map((number) => ({ sha256: digest(number) })),
        { maxLength: 4 },
      ),
      operations: fc.array(fc.constantFrom('list-accounts', 'list-api-keys', '/x/'), { maxLength: 2 }),
      weight: fc.constant(2),
    },
    { requiredKeys: ['name'] },
  ),
  { selector: ({ name }) => name, maxLength: 4 },
);

/** What each edit does to the value; the text must end up saying the same. */
type File = { callers: { name: string; tokens?: { sha256: string }[]; operations?: string[] }[] };

describe('an edit of the text of a callers file', () => {
  it('an edit says what the same edit of its value says, in every layout', () => {
    fc.assert(
      fc.property(callers, layouts, fc.nat(20), (list, layout, number) => {
        const text = laidOut({ callers: list }, layout);
        const sha256 = digest(number);
        const value = (): File => structuredClone({ callers: list }) as File;
        const expectSame = (edited: string, expected: File): void => {
          expect(JSON.parse(edited), edited).toEqual(expected);
        };

        const added = value();
        added.callers.push({ name: 'new', tokens: [{ sha256 }], operations: ['list-accounts'] });
        expectSame(addCaller(text, 'new', { sha256 }, ['list-accounts']), added);
        expectSame(removeCaller(addCaller(text, 'new', { sha256 }, []), 'new'), value());

        for (const [index, { name, tokens }] of list.entries()) {
          const withToken = value();
          const one = withToken.callers[index];
          if (one !== undefined) one.tokens = [...(one.tokens ?? []), { sha256 }];
          expectSame(addToken(text, name, { sha256 }), withToken);

          const without = value();
          const other = without.callers[index];
          if (other?.tokens !== undefined)
            other.tokens = other.tokens.filter((token) => token.sha256 !== sha256);
          expectSame(removeTokens(text, name, new Set([sha256])), without);

          const granted = value();
          const third = granted.callers[index];
          if (third !== undefined) third.operations = ['list-api-keys'];
          expectSame(setMembers(text, name, { operations: ['list-api-keys'] }), granted);

          expectSame(removeCaller(text, name), { callers: value().callers.filter((_, at) => at !== index) });
          expect(findCaller(text, name)?.tokens).toHaveLength(tokens?.length ?? 0);
        }
      }),
    );
  });

  it('an edit puts a further caller on lines of its own, indented as its neighbour', () => {
    const text = '{\n\t"callers": [\n\t\t{ "name": "a" }\n\t]\n}\n';
    expect(addCaller(text, 'b', { sha256: 'x' }, ['list-accounts'])).toBe(
      '{\n\t"callers": [\n\t\t{ "name": "a" },\n\t\t{\n\t\t  "name": "b",\n\t\t  "tokens": [{ "sha256": "x" }],\n\t\t  "operations": ["list-accounts"]\n\t\t}\n\t]\n}\n',
    );
  });

  it('an edit adds operations to a caller that has none, for which the default holds', () => {
    const text = '{"callers":[{"name":"a"}]}';
    expect(findCaller(text, 'a')?.operations).toEqual(['list-accounts']);
    expect(setMembers(text, 'a', { operations: [] })).toBe('{"callers":[{"name":"a", "operations": []}]}');
  });

  it('an edit is refused for a caller that stands twice', () => {
    const text = '{"callers":[{"name":"a"},{"name":"a"}]}';
    expect(listCallers(text)).toHaveLength(2);
    for (const edit of [
      () => addToken(text, 'a', { sha256: 'x' }),
      () => removeCaller(text, 'a'),
      () => setMembers(text, 'a', { operations: [] }),
    ]) {
      expect(edit).toThrow(CallersTextError);
    }
  });
});
