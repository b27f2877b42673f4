import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { transformSync } from 'rolldown/utils';
import { describe, expect, it } from 'vitest';
import { itemsOf, type JsonNode, JsonTextError, membersOf, parseJsonTree } from '../../src/callers/json.ts';

/** What the tree says, as a plain value. */
function plain(node: JsonNode): unknown {
  if (node.type === 'array') return itemsOf(node).map(plain);
  if (node.type === 'object') {
    return Object.fromEntries(membersOf(node).map(({ name, value }) => [name, plain(value)]));
  }
  return node.value;
}

describe('a JSON tree (RFC 8259)', () => {
  it('a JSON tree says what JSON.parse says', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(0, 2), (text, spaces) => {
        const written = JSON.stringify(JSON.parse(text), null, spaces);
        expect(plain(parseJsonTree(written))).toEqual(JSON.parse(written));
      }),
    );
  });

  it('a text that JSON.parse refuses is refused', () => {
    const broken = fc
      .tuple(
        fc.json({ maxDepth: 3 }),
        fc.nat(),
        fc.constantFrom('', ',', ':', '"', '{', ']', '\\', '0', '\u0000'),
      )
      .map(([text, place, by]) => {
        const at = place % (text.length + 1);
        return text.slice(0, at) + by + text.slice(at + 1);
      });
    fc.assert(
      fc.property(broken, (text) => {
        let isJson = true;
        try {
          JSON.parse(text);
        } catch {
          isJson = false;
        }
        if (isJson) parseJsonTree(text);
        else expect(() => parseJsonTree(text)).toThrow(JsonTextError);
      }),
    );
  });

  it('a JSON tree shows a member that is written twice', () => {
    expect(membersOf(parseJsonTree('{"a":1,"__proto__":2,"a":3}')).map(({ name }) => name)).toEqual([
      'a',
      '__proto__',
      'a',
    ]);
  });

  it.each([
    ['{ "callers": [ }', 'line 1, column 16: a value expected'],
    ['{"a":1,\n}', 'line 2, column 1: a member name in double quotes expected'],
    ['{"a" 1}', 'line 1, column 6: ":" expected'],
    ['[1\n 2]', 'line 2, column 2: "," or "]" expected'],
    ['{"a":1 "b":2}', 'line 1, column 8: "," or "}" expected'],
    ['[1', 'line 1, column 3: "," or "]" expected'],
    ['{"a":[]', 'line 1, column 8: "," or "}" expected'],
    ['[1] 2', 'line 1, column 5: nothing more expected'],
    ['"\\q"', 'line 1, column 1: a string with a line break or an escape that JSON does not have'],
    ['[nul]', 'line 1, column 2: a character or a word that JSON does not have'],
    ['// x\n1', 'line 1, column 1: a comment, which JSON does not have'],
    ['', 'line 1, column 1: a value expected'],
    ['['.repeat(1_000_000), 'nested too deeply'],
  ])('a text that is not JSON is refused with line and column: %#', (text, message) => {
    expect(() => parseJsonTree(text)).toThrow(new JsonTextError(message));
  });

  it('a JSON tree is right in every process while the compiler warms up, for a file of 200 callers', () => {
    const module = fileURLToPath(new URL('../../src/callers/json.ts', import.meta.url));
    const callers = Array.from({ length: 200 }, (_, index) => ({
      name: `c${index}`,
      tokens: [{ sha256: String(index).padStart(64, 'a') }],
      limit: { perSecond: 1_000_000, burst: 1_000_000 },
    }));
    // What the compiler does depends on timing: one process shows nothing, several do.
    // Without its types and hints, which each process would have to take away or load.
    const { code } = transformSync(module, readFileSync(module, 'utf8'));
    const script = `${code.replace(/^import .*\/config\/.*$/m, '')}
      for (let round = 0; round < 20; round++) parseJsonTree(${JSON.stringify(JSON.stringify({ callers }))});`;
    for (let run = 0; run < 8; run++) {
      execFileSync(process.execPath, ['--input-type=module', '-e', script], { stdio: 'pipe' });
    }
  });
});
