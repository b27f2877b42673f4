import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type JsonNode, JsonTextError, parseJsonTree } from '../../src/callers/json-tree.ts';

/** What the tree says, as a plain value. */
function plain(node: JsonNode): unknown {
  if (node.kind === 'array') return node.items.map(plain);
  if (node.kind === 'object')
    return Object.fromEntries(node.members.map(({ name, value }) => [name, plain(value)]));
  return node.value;
}

describe('a JSON tree (RFC 8259)', () => {
  it('says what JSON.parse says', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(0, 2), (text, spaces) => {
        const written = JSON.stringify(JSON.parse(text), null, spaces);
        expect(plain(parseJsonTree(written))).toEqual(JSON.parse(written));
      }),
    );
  });

  it('is refused for whatever JSON.parse refuses', () => {
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

  it('knows where everything stands', () => {
    const text = ' { "a" : [ 1, "x" ] } ';
    const root = parseJsonTree(text);
    const list = root.kind === 'object' ? root.members[0]?.value : undefined;
    expect(text.slice(root.start, root.end)).toBe('{ "a" : [ 1, "x" ] }');
    expect(list && text.slice(list.start, list.end)).toBe('[ 1, "x" ]');
  });

  it('is right in every process while the compiler warms up, for a file of 200 callers', () => {
    const module = fileURLToPath(new URL('../../src/callers/json-tree.ts', import.meta.url));
    const callers = Array.from({ length: 200 }, (_, index) => ({
      name: `c${index}`,
      tokens: [{ sha256: String(index).padStart(64, 'a') }],
      limit: { perSecond: 1_000_000, burst: 1_000_000 },
    }));
    // What the compiler does depends on timing: one process shows nothing, several do.
    const script = `
      const { parseJsonTree } = await import(${JSON.stringify(`file://${module}`)});
      for (let round = 0; round < 20; round++) parseJsonTree(${JSON.stringify(JSON.stringify({ callers }))});`;
    for (let run = 0; run < 8; run++) {
      execFileSync(process.execPath, ['--input-type=module', '-e', script], { stdio: 'pipe' });
    }
  });
});
