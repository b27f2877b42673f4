/** Which workspace a request is for, by its path, and the base addresses that a caller has. */
import { type Caller, unnamedWorkspace } from '../callers/caller.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';

/** A workspace as the edge sees it. */
export interface EdgeWorkspace {
  /** Empty for the unnamed workspace. */
  readonly name: string;
  /** The outbound layers of this workspace. */
  readonly send: Handler<UpstreamRequest, Answer>;
}

/** The base address of a request that names no workspace. */
export const usualBase = '/api';
const namedStart = '/w/';

export interface BaseMatch {
  /** `undefined` where the path names none. */
  readonly name: string | undefined;
  /** Where in the path the base address ends. */
  readonly end: number;
}

const usual: BaseMatch = { name: undefined, end: usualBase.length };

/** The base address that a raw path begins with, `/api` or `/w/<workspace>/api`; `undefined` where it is neither. */
export function baseOf(path: string): BaseMatch | undefined {
  if (path.startsWith(usualBase)) return usual;
  if (!path.startsWith(namedStart)) return undefined;
  const slash = path.indexOf('/', namedStart.length);
  if (slash === -1 || !path.startsWith(usualBase, slash)) return undefined;
  return { name: path.slice(namedStart.length, slash), end: slash + usualBase.length };
}

/** The paths of the base addresses that this caller may use, the usual one first. */
export function basesOf({ workspaces, usualWorkspace }: Caller): readonly string[] {
  const named = [...workspaces].filter((name) => name !== unnamedWorkspace);
  return [
    ...(usualWorkspace === undefined ? [] : [usualBase]),
    ...named.map((name) => `${namedStart}${name}${usualBase}`),
  ];
}
