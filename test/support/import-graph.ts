/**
 * Which file imports which, and which room: a room is a folder directly below `src/`, or a file there. The levels are
 * those of the longest way down from `main.ts`.
 */
import { dirname, join, normalize } from 'node:path';

export interface SourceFile {
  /** From `src/`, with slashes. */
  readonly path: string;
  /** Without comments. */
  readonly code: string;
}

export type Graph = ReadonlyMap<string, ReadonlySet<string>>;

/** Code without its comments, so that a rule may be explained where it holds. */
export function codeOf(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1');
}

/** The room that a file of src/ belongs to: its folder, with a slash, or itself. */
export function roomOf(path: string): string {
  return path.includes('/') ? `${path.split('/')[0]}/` : path;
}

/** The files of src/ that a file imports, types included. */
export function importsOf({ path, code }: SourceFile): string[] {
  return [...code.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, target = '']) =>
    normalize(join(dirname(path), target)).replaceAll('\\', '/'),
  );
}

/** The graph of files. */
export function filesGraph(sources: readonly SourceFile[]): Graph {
  return new Map(sources.map((source) => [source.path, new Set(importsOf(source))]));
}

/** The graph of rooms. */
export function roomsGraph(sources: readonly SourceFile[]): Graph {
  const graph = new Map<string, Set<string>>();
  for (const source of sources) {
    const room = roomOf(source.path);
    const others = graph.get(room) ?? new Set();
    graph.set(room, others);
    for (const target of importsOf(source)) if (roomOf(target) !== room) others.add(roomOf(target));
  }
  return graph;
}

/** The cycles of a graph, each once, by a walk that looks at each edge once. */
export function cyclesOf(graph: Graph): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const walk = (node: string, path: readonly string[]): void => {
    const at = path.indexOf(node);
    if (at !== -1) cycles.push([...path.slice(at), node].join(' -> '));
    if (at !== -1 || done.has(node)) return;
    for (const next of graph.get(node) ?? []) walk(next, [...path, node]);
    done.add(node);
  };
  for (const node of graph.keys()) walk(node, []);
  return cycles;
}

/** How many stand on the longest way down, of a graph without cycles. */
export function levelsOf(graph: Graph): number {
  const depths = new Map<string, number>();
  const depthOf = (node: string): number => {
    const known = depths.get(node);
    if (known !== undefined) return known;
    const depth = 1 + Math.max(0, ...[...(graph.get(node) ?? [])].map(depthOf));
    depths.set(node, depth);
    return depth;
  };
  return Math.max(0, ...[...graph.keys()].map(depthOf));
}
